"""A copy of the journal in which all is judged and learned anew."""
