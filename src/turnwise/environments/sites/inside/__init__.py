"""What runs in the sites' own environment: the keeper of a site, and a module for each site. Imports no turnwise."""
