"""Tasks on the sites that start here: families of questions and changes, each with moves that solve it in a browser."""
