"""The sites that can be started here, a table: what each is, where it begins, what a task leaves as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.errors import DataError


@dataclass(frozen=True, slots=True)
class Site:
    """``host`` is the name under which a rollout's browser reaches its own instance, always at port 80.

    ``database`` is the SQLite file among its data. ``watched`` has queries by name whose rows a task must leave as they
    were, unless it says that they change.
    """

    name: str
    software: str
    start: str
    database: str
    watched: Mapping[str, str]

    @property
    def host(self) -> str:
        return f"{self.name}.invalid"

    @property
    def address(self) -> str:
        return f"http://{self.host}"


_SHOP = {
    "basket": "select b.owner_id, b.status, l.product_id, l.quantity from basket_line l "
    "join basket_basket b on b.id = l.basket_id order by l.id",
    "orders": "select id, number, user_id, total_incl_tax, status from order_order order by id",
    "reviews": "select id, product_id, user_id, title, body, score from reviews_productreview order by id",
    "addresses": "select id, user_id, first_name, last_name, line1, line4, postcode, country_id "
    "from address_useraddress order by id",
    "wishes": "select w.id, w.owner_id, w.name, l.product_id, l.quantity from wishlists_wishlist w "
    "left join wishlists_line l on l.wishlist_id = w.id order by w.id, l.id",
    "people": "select id, username, first_name, last_name, email from auth_user order by id",
    "goods": "select p.id, p.title, s.price from catalogue_product p join partner_stockrecord s on s.product_id = p.id "
    "order by p.id",
}
_TRACKER = {
    "issues": "select id, _title, _priority, _status, _assignedto, __retired__ from _issue order by id",
    "keywords of issues": "select nodeid, linkid from issue_keyword order by nodeid, linkid",
    "messages": "select m.id, m._summary, i.nodeid from _msg m left join issue_messages i on i.linkid = m.id "
    "order by m.id",
    "people": "select id, _username, _realname, _address, _phone, _organisation, __retired__ from _user order by id",
    "keywords": "select id, _name, __retired__ from _keyword order by id",
}
_WIKI = {
    "pages": "select name, version, text from wiki order by name, version",
    "tickets": "select id, summary, status, resolution, owner, component, milestone, priority from ticket order by id",
    "comments": "select ticket, newvalue from ticket_change where field = 'comment' order by ticket, time",
    "milestones": "select name, due, completed from milestone order by name",
}
SITES = {
    site.name: site
    for site in (
        Site("shop", "django-oscar", "/catalogue/", "shop.sqlite3", _SHOP),
        Site("tracker", "Roundup", "/", "db/db", _TRACKER),
        Site("wiki", "Trac", "/wiki", "db/trac.db", _WIKI),
    )
}


def site_named(name: object) -> Site:
    """Raises DataError for one that there is not."""
    if not isinstance(name, str) or name not in SITES:
        raise DataError(f"there is no site {str(name)[:40]!r} to start here, only {', '.join(SITES)}")
    return SITES[name]
