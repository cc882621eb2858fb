"""Tasks on sites that others wrote, mirrors of such sites, and what a judge of their episodes is shown."""
