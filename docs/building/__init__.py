"""Parts of the documentation that are made from the program itself whenever the site is built."""
