"""The shop: django-oscar on SQLite, with goods, reviews, and a customer who is signed in."""

# pyright: reportMissingImports=false
# What it imports is in the sites' own environment.
from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from wsgi import Application, signed_in, warm

DATABASE = "shop.sqlite3"
USER = "maria"
APPS = (
    *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages", "sites")),
    *("django.contrib.staticfiles", "django.contrib.flatpages", "oscar.config.Shop"),
    *("oscar.apps.analytics.apps.AnalyticsConfig", "oscar.apps.checkout.apps.CheckoutConfig"),
    *("oscar.apps.address.apps.AddressConfig", "oscar.apps.shipping.apps.ShippingConfig"),
    *("oscar.apps.catalogue.apps.CatalogueConfig", "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig"),
    *("oscar.apps.communication.apps.CommunicationConfig", "oscar.apps.partner.apps.PartnerConfig"),
    *("oscar.apps.basket.apps.BasketConfig", "oscar.apps.payment.apps.PaymentConfig"),
    *("oscar.apps.offer.apps.OfferConfig", "oscar.apps.order.apps.OrderConfig"),
    *("oscar.apps.customer.apps.CustomerConfig", "oscar.apps.search.apps.SearchConfig"),
    *("oscar.apps.voucher.apps.VoucherConfig", "oscar.apps.wishlists.apps.WishlistsConfig"),
    "oscar.apps.dashboard.apps.DashboardConfig",
    *(
        f"oscar.apps.dashboard.{name}.apps.{name.capitalize()}DashboardConfig"
        for name in (
            *("reports", "users", "orders", "catalogue", "offers", "partners", "pages", "ranges"),
            *("reviews", "vouchers", "communications", "shipping"),
        )
    ),
    *("widget_tweaks", "haystack", "treebeard", "django_tables2"),
)
MIDDLEWARE = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.RemoteUserMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
)
PROCESSORS = (
    *(f"django.template.context_processors.{name}" for name in ("debug", "request", "i18n", "media", "static")),
    *("django.contrib.auth.context_processors.auth", "django.contrib.messages.context_processors.messages"),
    *("oscar.apps.search.context_processors.search_form", "oscar.apps.checkout.context_processors.checkout"),
    *(
        "oscar.core.context_processors.metadata",
        "oscar.apps.communication.notifications.context_processors.notifications",
    ),
)
urlpatterns: list[Any] = []
"""Django looks for them in this module; they are known once its applications are loaded."""

LOOKS = ("Red", "Blue", "Green", "White", "Grey", "Yellow")
GOODS = {
    "Kitchen": ("Mug", "Teapot", "Bowl", "Kettle", "Chopping Board", "Biscuit Tin", "Jug", "Salt Mill"),
    "Garden": ("Watering Can", "Trowel", "Planter", "Lantern", "Bird House", "Rake", "Hose Reel", "Basket"),
    "Office": ("Desk Lamp", "Notebook", "Stapler", "Wall Clock", "Pencil Case", "Letter Tray", "Globe", "Footrest"),
    "Toys": ("Puzzle", "Kite", "Train Set", "Spinning Top", "Doll House", "Marble Run", "Yo-Yo", "Rocking Horse"),
    "Bathroom": ("Towel", "Soap Dish", "Mirror", "Bath Mat", "Shower Caddy", "Brush", "Laundry Bin", "Stool"),
}
MATERIALS = ("ceramic", "steel", "oak", "bamboo", "cotton", "glass", "copper", "cork")
PLACES = ("Portugal", "Wales", "Finland", "Japan", "Italy", "Poland")
REVIEWERS = (("ada", "Ada", "Brook"), ("tom", "Tom", "Fischer"), ("ines", "Ines", "Vidal"), ("joel", "Joel", "Marsh"))
TITLES = ("Better than I hoped", "Does its job", "A gift that was liked", "Not for every day", "Would buy it again")
TITLES += ("Smaller than it looks", "Good value", "Came quickly", "A little heavy", "Just right")
COUNTRIES = (("GB", "United Kingdom"), ("FR", "France"), ("DE", "Germany"), ("IE", "Ireland"))
ADDRESSES = (
    ("12 Mill Lane", "York", "YO1 7HH"),
    ("4 Harbour Street", "Whitby", "YO21 1DN"),
    ("88 Park Road", "Leeds", "LS8 1JT"),
)


class StaticPicture:
    """What stands for every picture: the shop has none of its own."""

    url, width, height = "/static/oscar/img/image_not_found.jpg", 155, 155


class NoPictures:
    """Oscar's thumbnailer, without files to make thumbnails of."""

    def generate_thumbnail(self, source: Any, **options: Any) -> StaticPicture:
        return StaticPicture()

    def delete_thumbnails(self, source: Any) -> None:
        pass


def configure(folder: Path) -> None:
    """Load Django and Oscar with the data of a folder. Its index is searched by every instance, and changed by none."""
    import django
    from django.conf import settings
    from oscar import defaults

    named = {name: value for name, value in vars(defaults).items() if name.isupper()}
    named |= {"OSCAR_SHOP_NAME": "Larch & Lantern", "OSCAR_THUMBNAILER": "shop.NoPictures"}
    named |= {"OSCAR_INITIAL_ORDER_STATUS": "Pending", "OSCAR_INITIAL_LINE_STATUS": "Pending"}
    named |= {"OSCAR_ORDER_STATUS_PIPELINE": {"Pending": ("Sent",), "Sent": ()}}
    named |= {"HAYSTACK_SIGNAL_PROCESSOR": "haystack.signals.BaseSignalProcessor"}
    settings.configure(
        **named,
        ALLOWED_HOSTS=["shop.invalid", "127.0.0.1"],
        AUTHENTICATION_BACKENDS=["django.contrib.auth.backends.RemoteUserBackend"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / DATABASE)}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend",
        HAYSTACK_CONNECTIONS={
            "default": {"ENGINE": "haystack.backends.whoosh_backend.WhooshEngine", "PATH": str(folder / "index")}
        },
        INSTALLED_APPS=APPS,
        LANGUAGE_CODE="en-gb",
        LANGUAGES=[("en-gb", "English")],
        LOGGING_CONFIG=None,
        MEDIA_ROOT=str(folder / "media"),
        MEDIA_URL="/media/",
        MIDDLEWARE=MIDDLEWARE,
        ROOT_URLCONF="shop",
        SECRET_KEY="the shop has no secrets",
        SITE_ID=1,
        STATIC_URL="/static/",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": PROCESSORS},
            }
        ],
        TIME_ZONE="UTC",
        USE_TZ=True,
    )
    django.setup()
    from django.apps import apps
    from django.urls import include, path

    urlpatterns[:] = [
        path("i18n/", include("django.conf.urls.i18n")),
        path("", include(apps.get_app_config("oscar").urls[0])),
    ]


def load(folder: Path) -> None:
    configure(folder)
    from django.db import connections

    pages = (
        "/catalogue/",
        "/catalogue/?page=2",
        "/basket/",
        "/accounts/profile/",
        "/accounts/orders/",
        "/search/?q=mug",
    )
    warm(application(folder, "http://127.0.0.1"), pages)
    connections.close_all()


def application(folder: Path, address: str) -> Application:
    from django.conf import settings
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application
    from django.db import connections

    settings.DATABASES["default"]["NAME"] = connections["default"].settings_dict["NAME"] = str(folder / DATABASE)
    return signed_in(StaticFilesHandler(get_wsgi_application()), USER)


def make(folder: Path) -> None:
    """Fill a new folder with the shop's data, the same each time."""
    (folder / "media").mkdir(parents=True)
    (folder / "media" / "image_not_found.jpg").touch()
    configure(folder)
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    chance = random.Random(20)
    _people()
    products = _products(chance)
    _reviews(chance, products)
    _orders(chance, products)
    _basket(products)
    call_command("update_index", verbosity=0)


def _people() -> None:
    from django.contrib.auth.models import User
    from django.contrib.sites.models import Site
    from oscar.apps.address.models import Country, UserAddress

    Site.objects.update(domain="shop.invalid", name="Larch & Lantern")
    people = ((USER, "Maria", "Lopez"), *REVIEWERS)
    for name, first, last in people:
        User.objects.create(username=name, first_name=first, last_name=last, email=f"{name}@shop.example", password="!")
    countries = {
        code: Country.objects.create(
            iso_3166_1_a2=code, printable_name=name, name=name, is_shipping_country=True, display_order=code == "GB"
        )
        for code, name in COUNTRIES
    }
    maria = User.objects.get(username=USER)
    for line, town, postcode in ADDRESSES:
        UserAddress.objects.create(
            user=maria,
            first_name="Maria",
            last_name="Lopez",
            line1=line,
            line4=town,
            postcode=postcode,
            country=countries["GB"],
        )


def _products(chance: random.Random) -> list[Any]:
    from oscar.apps.catalogue.categories import create_from_breadcrumbs
    from oscar.apps.catalogue.models import Product, ProductAttribute, ProductCategory, ProductClass
    from oscar.apps.partner.models import Partner, StockRecord

    kind = ProductClass.objects.create(name="Goods")
    for name, code, of in (
        ("Material", "material", "text"),
        ("Made in", "origin", "text"),
        ("Weight in g", "weight", "integer"),
    ):
        ProductAttribute.objects.create(product_class=kind, name=name, code=code, type=of)
    partner = Partner.objects.create(name="Larch & Lantern")
    found = []
    for category, names in GOODS.items():
        shelf = create_from_breadcrumbs(category)
        prices = chance.sample(range(450, 9900, 5), len(names))
        for name, price in zip(names, prices, strict=True):
            material, origin = chance.choice(MATERIALS), chance.choice(PLACES)
            product = Product(
                title=f"{chance.choice(LOOKS)} {name}",
                product_class=kind,
                upc=f"LL{len(found) + 101}",
                description=f"<p>Made of {material} in {origin}.</p>",
            )
            product.attr.material, product.attr.origin = material, origin
            product.attr.weight = chance.randrange(80, 4000, 10)
            product.save()
            ProductCategory.objects.create(product=product, category=shelf)
            StockRecord.objects.create(
                product=product,
                partner=partner,
                partner_sku=product.upc,
                price=Decimal(price) / 100,
                num_in_stock=chance.randrange(20, 90),
            )
            found.append(product)
    return found


def _reviews(chance: random.Random, products: list[Any]) -> None:
    from django.contrib.auth.models import User
    from oscar.apps.catalogue.reviews.models import ProductReview

    for product in products:
        writers = chance.sample(REVIEWERS, 2)
        titles = chance.sample(TITLES, 2)
        for (name, *_), title, score in zip(writers, titles, chance.sample(range(1, 6), 2), strict=True):
            ProductReview.objects.create(
                product=product,
                user=User.objects.get(username=name),
                title=title,
                body=f"{title}. I have had it for {chance.randrange(2, 12)} months.",
                score=score,
                status=ProductReview.APPROVED,
            )
    begin = datetime(2026, 2, 3, 12, tzinfo=UTC)
    for number, review in enumerate(ProductReview.objects.order_by("id")):
        ProductReview.objects.filter(id=review.id).update(date_created=begin + timedelta(hours=31 * number))


def _orders(chance: random.Random, products: list[Any]) -> None:
    from django.contrib.auth.models import User
    from oscar.apps.order.models import Line, Order
    from oscar.apps.wishlists.models import WishList

    maria, begin = User.objects.get(username=USER), datetime(2026, 1, 12, 9, 30, tzinfo=UTC)
    for number, bought in enumerate(chance.sample(products, 6)):
        quantity = chance.randrange(1, 4)
        price = bought.stockrecords.get().price
        total = price * quantity
        order = Order.objects.create(
            number=str(100231 + 17 * number),
            user=maria,
            currency="GBP",
            total_incl_tax=total,
            total_excl_tax=total,
            shipping_method="Free shipping",
            status=("Sent", "Pending")[number % 2],
            date_placed=begin + timedelta(days=23 * number),
        )
        Line.objects.create(
            order=order,
            partner=bought.stockrecords.get().partner,
            partner_sku=bought.upc,
            stockrecord=bought.stockrecords.get(),
            product=bought,
            title=bought.title,
            upc=bought.upc,
            quantity=quantity,
            num_allocated=0,
            status=order.status,
            line_price_incl_tax=total,
            line_price_excl_tax=total,
            line_price_before_discounts_incl_tax=total,
            line_price_before_discounts_excl_tax=total,
            unit_price_incl_tax=price,
            unit_price_excl_tax=price,
        )
    WishList.objects.create(owner=maria, name="Birthday", key="birthday").add(products[5])


def _basket(products: list[Any]) -> None:
    from django.contrib.auth.models import User
    from oscar.apps.basket.models import Basket
    from oscar.apps.partner.strategy import Selector

    basket = Basket.objects.create(owner=User.objects.get(username=USER))
    basket.strategy = Selector().strategy()
    for product, quantity in ((products[3], 1), (products[17], 2)):
        basket.add_product(product, quantity)
