"""Tasks in the shop: prices and other facts, the basket, orders, reviews, addresses and lists of wishes."""

from __future__ import annotations

import random
from collections.abc import Mapping

from turnwise.environments.site_tasks.base import (
    Ask,
    Move,
    SiteCase,
    SiteFamily,
    answer,
    choose,
    click,
    done,
    link,
    quoted,
    write,
)

_ATTRIBUTE = (
    "select v.value_text from catalogue_productattributevalue v "
    "join catalogue_productattribute a on a.id = v.attribute_id "
    "join catalogue_product p on p.id = v.product_id where a.code = {code} and p.title = {title}"
)
_BASKET = (
    "select p.title, l.quantity from basket_line l join basket_basket b on b.id = l.basket_id "
    "join catalogue_product p on p.id = l.product_id where b.status = 'Open' order by p.title"
)
NAMES = ("Vega", "Quist", "Oduya", "Halloran", "Petrov", "Lindqvist", "Amari", "Fenwick")
STREETS = ("Orchard Row", "Station Road", "Bridge Street", "Church Walk", "Canal Side")
TOWNS = (("Ripon", "HG4 1QT"), ("Selby", "YO8 4PU"), ("Malton", "YO17 7LP"), ("Otley", "LS21 1HD"))
PRAISE = ("Sturdy and plain", "Much used", "Nice to hold", "Arrived whole", "Worth the money")


def _title(chance: random.Random, ask: Ask, outside: bool = False) -> str:
    """A product, on request one that is not in the basket."""
    titles = [row[0] for row in ask("select title from catalogue_product order by id")]
    taken = {row[0] for row in ask(_BASKET)} if outside else set()
    return chance.choice([title for title in titles if title not in taken])


def _product(title: str) -> list[Move]:
    """To the page of a product."""
    return [write("Search", title), click("Search", "button"), link(title)]


def _counted(title: str, quantity: int) -> list[Move]:
    """In the basket, change how many there are of a product."""
    return [write("", str(quantity), below=title), click("Update", "button", below=title)]


def _price(chance: random.Random, ask: Ask) -> SiteCase:
    title = _title(chance, ask)
    query = (
        "select printf('%.2f', s.price) from catalogue_product p join partner_stockrecord s on s.product_id = p.id "
        f"where p.title = {quoted(title)}"
    )
    price = ask(query)[0][0]
    asked = f"{query} union select '£' || printf('%.2f', s.price) {query[query.index('from') :]}"
    return SiteCase(
        f"What does the {title} cost? Answer with the price alone.",
        {"asked": asked},
        [*_product(title), answer(price, f"£{price}")],
    )


def _origin(chance: random.Random, ask: Ask) -> SiteCase:
    title = _title(chance, ask)
    asked = _ATTRIBUTE.format(code=quoted("origin"), title=quoted(title))
    country = ask(asked)[0][0]
    return SiteCase(
        f"In which country is the {title} made? Answer with the name of the country alone.",
        {"asked": asked},
        [*_product(title), answer(country, f'"{country}"')],
    )


def _cheapest(chance: random.Random, ask: Ask) -> SiteCase:
    category = chance.choice([row[0] for row in ask("select name from catalogue_category order by name")])
    asked = (
        "select p.title from catalogue_product p join partner_stockrecord s on s.product_id = p.id "
        "join catalogue_productcategory pc on pc.product_id = p.id join catalogue_category c on c.id = pc.category_id "
        f"where c.name = {quoted(category)} order by s.price limit 1"
    )
    title = ask(asked)[0][0]
    return SiteCase(
        f"Which product of the category {category} is the cheapest? Answer with its name alone.",
        {"asked": asked},
        [link(category), answer(title, f'"{title}"')],
    )


def _reviewer(chance: random.Random, ask: Ask) -> SiteCase:
    product, title, first, last = chance.choice(
        ask(
            "select p.title, r.title, u.first_name, u.last_name from reviews_productreview r "
            "join catalogue_product p on p.id = r.product_id join auth_user u on u.id = r.user_id order by r.id"
        )
    )
    asked = (
        "select u.first_name || ' ' || u.last_name from reviews_productreview r join auth_user u on u.id = r.user_id "
        "join catalogue_product p on p.id = r.product_id "
        f"where p.title = {quoted(product)} and r.title = {quoted(title)}"
    )
    return SiteCase(
        f'Who wrote the review "{title}" of the {product}? Answer with first and last name.',
        {"asked": asked},
        [*_product(product), answer(f"{first} {last}")],
    )


def _order_status(chance: random.Random, ask: Ask) -> SiteCase:
    number, status = chance.choice(ask("select number, status from order_order order by number"))
    return SiteCase(
        f"What is the status of my order {number}? Answer with the word that the shop has for it.",
        {"asked": f"select status from order_order where number = {quoted(number)}"},
        [link("Account"), link("Order History"), link(number), answer(status, f'"{status}"')],
    )


def _ordered(chance: random.Random, ask: Ask) -> SiteCase:
    number, title = chance.choice(
        ask("select o.number, l.title from order_order o join order_line l on l.order_id = o.id order by o.number")
    )
    return SiteCase(
        f"What did I buy with order {number}? Answer with the name of the product alone.",
        {
            "asked": "select l.title from order_line l join order_order o on o.id = l.order_id "
            f"where o.number = {quoted(number)}"
        },
        [link("Account"), link("Order History"), link(number), answer(title)],
    )


def _in_basket(rows: Mapping[str, int]) -> list[dict[str, object]]:
    return [{"query": _BASKET, "rows": [[title, quantity] for title, quantity in sorted(rows.items())]}]


def _add(chance: random.Random, ask: Ask) -> SiteCase:
    title, quantity = _title(chance, ask, outside=True), chance.randrange(2, 8)
    rows = dict(ask(_BASKET)) | {title: quantity}
    return SiteCase(
        f"Put {quantity} of the {title} into my basket.",
        {"checks": _in_basket(rows), "changes": ["basket"]},
        [
            *_product(title),
            click("Add to basket", "button"),
            click("View basket", "button"),
            *_counted(title, quantity),
            done(),
        ],
    )


def _quantity(chance: random.Random, ask: Ask) -> SiteCase:
    rows = dict(ask(_BASKET))
    title = chance.choice(sorted(rows))
    rows[title] = quantity = chance.randrange(3, 9)
    return SiteCase(
        f"I have the {title} in my basket. Change how many to {quantity}.",
        {"checks": _in_basket(rows), "changes": ["basket"]},
        [click("View basket", "button"), *_counted(title, quantity), done()],
    )


def _remove(chance: random.Random, ask: Ask) -> SiteCase:
    rows = dict(ask(_BASKET))
    title = chance.choice(sorted(rows))
    del rows[title]
    return SiteCase(
        f"Take the {title} out of my basket.",
        {"checks": _in_basket(rows), "changes": ["basket"]},
        [click("View basket", "button"), link("Remove", below=title), done()],
    )


def _order(chance: random.Random, ask: Ask) -> SiteCase:
    line, town = chance.choice(ask("select line1, line4 from address_useraddress order by id"))
    known = ask("select max(id) from order_order")[0][0]
    bought = [list(row) for row in ask(_BASKET)]
    return SiteCase(
        f"Order what is in my basket, to be sent to my address in {town}.",
        {
            "checks": [
                {
                    "query": "select u.username, a.line1, a.line4 from order_order o "
                    "join auth_user u on u.id = o.user_id "
                    f"join order_shippingaddress a on a.id = o.shipping_address_id where o.id > {known}",
                    "rows": [["maria", line, town]],
                },
                {
                    "query": f"select title, quantity from order_line where order_id > {known} order by title",
                    "rows": bought,
                },
            ],
            "changes": ["basket", "orders"],
        },
        [
            click("View basket", "button"),
            link("Proceed to checkout"),
            click("Ship to this address", "button", below=line),
            link("Continue"),
            click("Place order", "button"),
            done(),
        ],
    )


def _review(chance: random.Random, ask: Ask) -> SiteCase:
    title, words, months = _title(chance, ask), chance.choice(PRAISE), chance.randrange(2, 20)
    body, score = f"I have used it for {months} months.", chance.randrange(1, 6)
    known = ask("select max(id) from reviews_productreview")[0][0]
    return SiteCase(
        f'Write a review of the {title} with the title "{words}", the score {score} and the text "{body}"',
        {
            "checks": [
                {
                    "query": "select p.title, r.title, r.body, r.score, u.username from reviews_productreview r "
                    "join catalogue_product p on p.id = r.product_id join auth_user u on u.id = r.user_id "
                    f"where r.id > {known}",
                    "rows": [[title, words, body, score, "maria"]],
                },
                {"query": f"select * from reviews_productreview where id <= {known} order by id", "same": True},
            ],
            "changes": ["reviews"],
        },
        [
            *_product(title),
            link("Write a review"),
            write("Title", words),
            Move("click", "", ("i",), below="Score", nth=score - 1),
            write("Body", body),
            click("Save review", "button"),
            done(),
        ],
    )


def _profile(chance: random.Random, ask: Ask) -> SiteCase:
    name = chance.choice(NAMES)
    return SiteCase(
        f"Change my last name in my profile to {name}. Leave the rest as it is.",
        {
            "checks": [
                {
                    "query": "select first_name, last_name, email from auth_user where username = 'maria'",
                    "rows": [["Maria", name, "maria@shop.example"]],
                },
                {
                    "query": "select id, first_name, last_name, email from auth_user where username <> 'maria'",
                    "same": True,
                },
            ],
            "changes": ["people"],
        },
        [link("Account"), link("Edit profile"), write("Last name", name), click("Save", "button"), done()],
    )


def _address(chance: random.Random, ask: Ask) -> SiteCase:
    (town, code), line = chance.choice(TOWNS), f"{chance.randrange(2, 99)} {chance.choice(STREETS)}"
    first, last = chance.choice(("Rosa", "Pavel", "Grace", "Omar")), chance.choice(NAMES)
    known = ask("select max(id) from address_useraddress")[0][0]
    return SiteCase(
        f"Add an address to my address book: {first} {last}, {line}, {town}, postcode {code}, United Kingdom.",
        {
            "checks": [
                {
                    "query": "select first_name, last_name, line1, line4, postcode, country_id "
                    f"from address_useraddress where id > {known}",
                    "rows": [[first, last, line, town, code, "GB"]],
                },
                {
                    "query": f"select * from address_useraddress where id <= {known} order by id",
                    "same": True,
                },
            ],
            "changes": ["addresses"],
        },
        [
            link("Account"),
            link("Address Book"),
            link("Add a new address"),
            write("First name", first),
            write("Last name", last),
            write("First line of address", line),
            write("City", town),
            write("Post/Zip-code", code),
            choose("Country", "United Kingdom"),
            click("Save", "button"),
            done(),
        ],
    )


def _wish(chance: random.Random, ask: Ask) -> SiteCase:
    taken = {row[0] for row in ask("select product_id from wishlists_line")}
    goods = ask("select title, id from catalogue_product order by id")
    title = chance.choice([title for title, number in goods if number not in taken])
    return SiteCase(
        f"Put the {title} on my wish list Birthday.",
        {
            "checks": [
                {
                    "query": "select w.name, p.title, l.quantity from wishlists_line l "
                    "join wishlists_wishlist w on w.id = l.wishlist_id join catalogue_product p on p.id = l.product_id "
                    f"where p.id not in ({', '.join(map(str, sorted(taken)))})",
                    "rows": [["Birthday", title, 1]],
                },
                {
                    "query": "select wishlist_id, product_id, quantity from wishlists_line where product_id in "
                    f"({', '.join(map(str, sorted(taken)))}) order by id",
                    "same": True,
                },
                {"query": "select id, name from wishlists_wishlist order by id", "same": True},
            ],
            "changes": ["wishes"],
        },
        [*_product(title), link("Add to wish list"), link("Add to 'Birthday' wish list"), done()],
    )


FAMILIES = (
    SiteFamily("shop-price", "shop", "what a product costs", _price),
    SiteFamily("shop-origin", "shop", "where a product is made", _origin),
    SiteFamily("shop-cheapest", "shop", "the cheapest product of a category", _cheapest),
    SiteFamily("shop-reviewer", "shop", "who wrote a review", _reviewer),
    SiteFamily("shop-order-status", "shop", "the status of an order", _order_status),
    SiteFamily("shop-ordered", "shop", "what was bought with an order", _ordered),
    SiteFamily("shop-add", "shop", "put a number of a product into the basket", _add),
    SiteFamily("shop-quantity", "shop", "change a quantity in the basket", _quantity),
    SiteFamily("shop-remove", "shop", "take a product out of the basket", _remove),
    SiteFamily("shop-order", "shop", "order the basket to an address", _order),
    SiteFamily("shop-review", "shop", "write a review with a score", _review),
    SiteFamily("shop-profile", "shop", "change a name in the profile", _profile),
    SiteFamily("shop-address", "shop", "add an address", _address),
    SiteFamily("shop-wish", "shop", "put a product on a list of wishes", _wish),
)
