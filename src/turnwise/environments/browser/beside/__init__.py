"""What a browser's environment has beside its pages: mirrors of sites, and what a judge of an episode is shown."""
