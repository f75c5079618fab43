"""What helps to label images: labels that are likely to be wrong or missing, and the images to label next."""
