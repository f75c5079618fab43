"""The heads of the methods, and the losses that go with them."""
