"""A shop on Django and MongoDB's backend for it: models, migrations, users, orders and reports. TENON_URI names the server,
whose database `t_django` is this program's own; of a replica set, orders are placed in transactions. It ends with 0 and a
line that says what it checked, or with a traceback.

The empty folder given as the first argument takes the migrations that it writes."""

import datetime
import os
import sys
from decimal import Decimal
from pathlib import Path

import django
from django.conf import settings

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
FOLDER = Path(sys.argv[1])
for package in settings.MIGRATION_MODULES.values():
    (FOLDER / package).mkdir()
    (FOLDER / package / "__init__.py").touch()
sys.path.append(str(FOLDER))
django.setup()

from django.contrib.auth import authenticate, get_user_model  # noqa: E402
from django.contrib.auth.models import Group, Permission  # noqa: E402
from django.core.exceptions import ValidationError  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.paginator import Paginator  # noqa: E402
from django.db import IntegrityError, connection, models  # noqa: E402
from django.db.models import Avg, Case, Count, Exists, F, Max, Min, OuterRef, Q, StdDev, Subquery, Sum, Value, When  # noqa: E402
from django.db.models.functions import Coalesce, Concat, ExtractYear, Length, Lower, TruncMonth, Upper  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import setup_test_environment  # noqa: E402
from django_mongodb_backend import transaction  # noqa: E402
from shop.models import Article, Label, Line, Maker, Order, Remark, Size  # noqa: E402

DATABASE = settings.DATABASES["default"]["NAME"]
SET = "replicaSet=" in os.environ["TENON_URI"]
MIGRATIONS = FOLDER / "shop_migrations"


def raises(error, work, *arguments, **named):
    try:
        work(*arguments, **named)
    except error as found:
        return found
    raise AssertionError(f"no {error.__name__}")


def names(query):
    return [article.name for article in query]


def at(day, hour=12):
    return datetime.datetime(2024, 1, 1, hour, 30, 15, 250_000, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=day)


def migrate():
    call_command("makemigrations", "contenttypes", "auth", "admin", "shop", verbosity=0)
    call_command("migrate", verbosity=0)
    tables = connection.introspection.table_names()
    assert {"shop_article", "shop_article_labels", "auth_user", "django_session", "django_migrations"} <= set(tables), tables
    assert "shop_size" not in tables
    call_command("makemigrations", "shop", check=True, verbosity=0)
    indexes = connection.database["shop_article"].index_information()
    assert indexes["by_kind"]["key"] == [("kind", 1), ("price", -1)] and indexes["in_stock"]["partialFilterExpression"] == {"stock": {"$gt": 0}}, indexes
    assert indexes["one_of_a_name"]["unique"] and "maker_id" in indexes["one_of_a_name"]["partialFilterExpression"], indexes
    # A change of a model that has data: a field comes with a default, gets another name and goes; an index comes and goes.
    Label.objects.create(word="old")
    (MIGRATIONS / "0002_rank.py").write_text(
        "from django.db import migrations, models\n\n\n"
        "def fill(apps, editor):\n    apps.get_model('shop', 'Label').objects.update(rank=5)\n\n\n"
        "class Migration(migrations.Migration):\n"
        "    dependencies = [('shop', '0001_initial')]\n"
        "    operations = [\n"
        "        migrations.AddField('label', 'place', models.IntegerField(default=3)),\n"
        "        migrations.RenameField('label', 'place', 'rank'),\n"
        "        migrations.AddIndex('label', models.Index(fields=['rank'], name='by_rank')),\n"
        "        migrations.RunPython(fill, migrations.RunPython.noop),\n"
        "    ]\n"
    )
    call_command("migrate", "shop", verbosity=0)
    labels = connection.database["shop_label"]
    assert labels.find_one({}, {"_id": 0}) == {"word": "old", "rank": 5} and "by_rank" in labels.index_information()
    call_command("migrate", "shop", "0001", verbosity=0)
    assert labels.find_one({}, {"_id": 0}) == {"word": "old"} and "by_rank" not in labels.index_information()
    (MIGRATIONS / "0002_rank.py").unlink()
    Label.objects.all().delete()


def users():
    User = get_user_model()
    ann = User.objects.create_user("ann", "ann@example.org", "secret")
    root = User.objects.create_superuser("root", "root@example.org", "more secret")
    assert authenticate(username="ann", password="secret") == ann and authenticate(username="ann", password="wrong") is None
    raises(IntegrityError, User.objects.create_user, "ann")
    staff = Group.objects.create(name="staff")
    staff.permissions.set(Permission.objects.filter(content_type__app_label="shop", codename__startswith="view_"))
    ann.groups.add(staff)
    ann = User.objects.get(username="ann")
    assert ann.has_perm("shop.view_article") and not ann.has_perm("shop.delete_article") and root.has_perm("shop.delete_article")
    assert Permission.objects.filter(content_type__model="article").count() == 4
    return ann, root


def stock():
    acme, bolt, idle = Maker.objects.bulk_create([Maker(name=name, country=country) for name, country in [("Acme", "gb"), ("Bolt", "de"), ("Idle", "gb")]])
    red, new, big = [Label.objects.create(word=word) for word in ("red", "new", "big")]
    made = []
    for n in range(1, 9):
        made.append(Article(
            name=f"Thing {n}", kind=Article.Kind.TOOL if n % 2 else Article.Kind.TOY, maker=acme if n < 6 else bolt, price=Decimal(n) + Decimal("0.25"),
            stock=10 * n, on_sale=n != 8, added=at(20 * n), day=datetime.date(2024, 1, n), guarantee=datetime.timedelta(days=n), picture=bytes([n]) * 4,
            facts={"weight": n, "parts": ["a", {"deep": n % 3}], "colour": None if n == 1 else "red"}, codes=[n, n + 1, n + 2],
            size=Size(width=n, height=2 * n), remarks=[Remark(stars=n % 5 + 1, text="so"), Remark(stars=3, text="well")],
        ))
    Article.objects.bulk_create(made, batch_size=3)
    assert all(article.pk for article in made)
    made[0].labels.add(red, new)
    made[1].labels.set([red])
    big.articles.add(made[1], made[2])
    raises(IntegrityError, Article.objects.create, name="Thing 1", kind="toy", maker=acme, price=1, added=at(0))
    raises(IntegrityError, Maker.objects.create, name="Acme", country="fr")
    raises(ValidationError, Article(name="x" * 101, kind="none", maker=acme, price=Decimal("1.234"), added=at(0)).full_clean)
    return acme, bolt, idle, made


def queries(bolt, made):
    objects = Article.objects
    one = objects.get(name="Thing 1")
    assert (one.price, one.added, one.day, one.guarantee) == (Decimal("1.25"), at(20), datetime.date(2024, 1, 1), datetime.timedelta(days=1))
    assert (one.picture, one.facts["parts"], one.codes, one.size.height) == (b"\1\1\1\1", ["a", {"deep": 1}], [1, 2, 3], 2)
    assert [remark.stars for remark in one.remarks] == [2, 3]
    raises(Article.DoesNotExist, objects.get, name="None")
    raises(Article.MultipleObjectsReturned, objects.get, kind="toy")
    assert names(objects.filter(kind="toy").exclude(name__endswith="4")) == ["Thing 2", "Thing 6", "Thing 8"]
    assert names(objects.filter(Q(stock__lt=20) | Q(price__gte=Decimal("8.25")))) == ["Thing 1", "Thing 8"]
    assert names(objects.filter(~Q(kind="toy"), price__range=(2, 6))) == ["Thing 3", "Thing 5"]
    assert names(objects.filter(name__icontains="THING", stock__in=[20, 30])) == ["Thing 2", "Thing 3"]
    assert names(objects.filter(name__regex=r"[78]$").order_by("-name")) == ["Thing 8", "Thing 7"]
    assert names(objects.filter(added__date__lt=datetime.date(2024, 2, 11), day__month=1)) == ["Thing 1", "Thing 2"]
    assert names(objects.filter(added__year=2024, added__month=5)) == ["Thing 7"]
    assert names(objects.filter(maker__country="de", maker__name__startswith="B")) == ["Thing 6", "Thing 7", "Thing 8"]
    assert names(objects.filter(labels__word="red")) == ["Thing 1", "Thing 2"] and names(objects.filter(labels=None)) == [f"Thing {n}" for n in range(4, 9)]
    assert names(objects.exclude(labels__word="red"))[:2] == ["Thing 3", "Thing 4"]
    assert names(objects.filter(stock__gt=F("price") * 9, size__height__gte=F("size__width") + 7)) == ["Thing 7", "Thing 8"]
    assert names(objects.filter(facts__weight__gt=6)) == ["Thing 7", "Thing 8"] and names(objects.filter(facts__colour=None)) == ["Thing 1"]
    assert names(objects.filter(facts__parts__1__deep=0)) == ["Thing 3", "Thing 6"] and objects.filter(facts__has_key="colour").count() == 8
    assert names(objects.filter(codes__contains=[3, 4])) == ["Thing 2", "Thing 3"] and names(objects.filter(codes__0=7)) == ["Thing 7"]
    assert names(objects.filter(codes__overlap=[1, 10])) == ["Thing 1", "Thing 8"] and objects.filter(codes__len=3).count() == 8
    assert names(objects.filter(size__width=4)) == ["Thing 4"] and names(objects.filter(remarks__stars=5)) == ["Thing 4"]
    assert names(objects.order_by("-price")[1:3]) == ["Thing 7", "Thing 6"] and objects.order_by("kind", "-stock").first().name == "Thing 7"
    assert names(objects.order_by("maker__name", "-name"))[:2] == ["Thing 5", "Thing 4"] and objects.last().name == "Thing 8"
    assert objects.earliest("added").name == "Thing 1" and objects.filter(kind="toy").latest("day").name == "Thing 8"
    assert objects.filter(stock=80).exists() and not objects.filter(stock=81).exists() and objects.none().count() == 0
    assert list(objects.values("kind").distinct().order_by("kind")) == [{"kind": "tool"}, {"kind": "toy"}]
    assert list(objects.values_list("name", "maker__country")[:1]) == [("Thing 1", "gb")] and list(objects.values_list("stock", flat=True))[-1] == 80
    assert list(objects.dates("added", "month"))[:2] == [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]
    assert objects.only("name").get(stock=10).price == Decimal("1.25") and objects.defer("facts").get(stock=10).facts["weight"] == 1
    assert objects.in_bulk([made[2].pk])[made[2].pk].name == "Thing 3"
    pages = Paginator(objects.all(), 3)
    assert (pages.count, pages.num_pages, names(pages.page(3))) == (8, 3, ["Thing 7", "Thing 8"])
    assert names(objects.filter(stock__lte=10).union(objects.filter(stock__gte=80))) == ["Thing 1", "Thing 8"]
    assert names(objects.filter(maker__in=Maker.objects.filter(country="de"))) == ["Thing 6", "Thing 7", "Thing 8"]
    assert names(objects.raw_aggregate([{"$match": {"stock": {"$gte": 70}}}, {"$sort": {"name": 1}}])) == ["Thing 7", "Thing 8"]
    plan = objects.filter(kind="toy").order_by("kind", "-price").explain()
    assert "by_kind" in plan and "COLLSCAN" not in plan, plan
    assert [article.name for article in objects.order_by("name").iterator(chunk_size=2)] == [f"Thing {n}" for n in range(1, 9)]

    with_maker = objects.select_related("maker").get(stock=60)
    assert "maker" in with_maker._state.fields_cache and with_maker.maker == bolt
    assert [label.word for label in made[1].labels.order_by("word")] == ["big", "red"] and Label.objects.get(word="red").articles.count() == 2


def reports():
    objects = Article.objects
    found = objects.aggregate(total=Sum("stock"), mean=Avg("stock"), low=Min("price"), high=Max("price"), n=Count("*"), makers=Count("maker", distinct=True))
    assert found == {"total": 360, "mean": 45.0, "low": Decimal("1.25"), "high": Decimal("8.25"), "n": 8, "makers": 2}, found
    assert round(objects.aggregate(d=StdDev("stock"))["d"], 3) == 22.913
    assert objects.filter(stock=-1).aggregate(n=Count("pk"), s=Sum("stock")) == {"n": 0, "s": None}
    by_kind = objects.order_by().values("kind").annotate(n=Count("pk"), worth=Sum(F("price") * F("stock"))).order_by("kind")
    assert list(by_kind) == [{"kind": "tool", "n": 4, "worth": Decimal("880")}, {"kind": "toy", "n": 4, "worth": Decimal("1250")}], list(by_kind)
    makers = Maker.objects.annotate(n=Count("articles"), dear=Count("articles", filter=Q(articles__price__gt=4))).order_by("-n")
    assert [(maker.name, maker.n, maker.dear) for maker in makers] == [("Acme", 5, 2), ("Bolt", 3, 3), ("Idle", 0, 0)]
    assert [maker.name for maker in Maker.objects.annotate(n=Sum("articles__stock")).filter(n__gt=200)] == ["Bolt"]
    assert [maker.name for maker in Maker.objects.filter(~Exists(Article.objects.filter(maker=OuterRef("pk"))))] == ["Idle"]
    newest = Article.objects.filter(maker=OuterRef("pk")).order_by("-added").values("name")[:1]
    rows = Maker.objects.annotate(newest=Coalesce(Subquery(newest), Value("none"))).order_by("name").values_list("name", "newest")
    assert list(rows) == [("Acme", "Thing 5"), ("Bolt", "Thing 8"), ("Idle", "none")], list(rows)
    row = objects.annotate(
        big=Case(When(stock__gte=50, then=Value("much")), default=Value("little")), upper=Upper("name"), label=Concat(Lower("kind"), Value("/"), F("maker__name")),
        length=Length("name"), year=ExtractYear("added"), month=TruncMonth("added"), twice=F("stock") * 2 + 1,
    ).get(stock=50)
    assert (row.big, row.upper, row.label, row.length, row.year, row.twice) == ("much", "THING 5", "tool/Acme", 7, 2024, 101)
    assert row.month == datetime.datetime(2024, 4, 1, tzinfo=datetime.timezone.utc), row.month


def changes(bolt, idle):
    objects = Article.objects
    assert objects.filter(kind="toy").update(stock=F("stock") + 5, on_sale=False) == 4
    assert sorted(objects.filter(on_sale=False).values_list("stock", flat=True)) == [25, 45, 65, 85]
    assert objects.filter(kind="toy").update(stock=Case(When(price__lt=3, then=0), default=F("stock") - 5)) == 4
    assert objects.filter(maker=bolt).update(on_sale=True) == 3
    one = objects.get(name="Thing 1")
    one.price, one.size.width, one.facts["weight"] = Decimal("9.99"), 50, 11
    one.save(update_fields=["price", "size", "facts"])
    one.stock = F("stock") + 1
    one.save()
    one.refresh_from_db()
    assert (one.price, one.size.width, one.facts["weight"], one.stock) == (Decimal("9.99"), 50, 11, 11)
    many = list(objects.filter(kind="tool"))
    for n, article in enumerate(many):
        article.codes = [n]
    assert objects.bulk_update(many, ["codes"]) == 4 and list(objects.filter(kind="tool").values_list("codes", flat=True)) == [[0], [1], [2], [3]]
    found, made = Maker.objects.get_or_create(name="Acme", defaults={"country": "xx"})
    assert (found.country, made) == ("gb", False)
    found, made = Maker.objects.update_or_create(name="Late", defaults={"country": "fr"}, create_defaults={"country": "es"})
    assert (found.country, made) == ("es", True)
    found, made = Maker.objects.update_or_create(name="Late", defaults={"country": "fr"})
    assert (Maker.objects.get(name="Late").country, made) == ("fr", False)
    assert found.delete() == (1, {"shop.Maker": 1}) and idle.articles.count() == 0


def orders(ann, made):
    def place(*wanted):
        order = Order.objects.create(user=ann)
        for article, pieces in wanted:
            if not Article.objects.filter(pk=article.pk, stock__gte=pieces).update(stock=F("stock") - pieces):
                raise ValueError("sold out")
            Line.objects.create(order=order, article=article, pieces=pieces)
        return order

    if SET:
        place = transaction.atomic(place)
    place((made[3], 1), (made[4], 2))
    done = place((made[4], 3))
    assert Article.objects.get(pk=made[4].pk).stock == 45
    if SET:
        called = []
        raises(ValueError, place, (made[4], 1), (made[3], 1000))
        assert Order.objects.count() == 2 and Line.objects.count() == 3 and Article.objects.get(pk=made[4].pk).stock == 45
        with transaction.atomic():
            transaction.on_commit(lambda: called.append(Order.objects.count()))
            inner = place((made[4], 1))
            assert Order.objects.count() == 3 and called == []
        assert called == [3]
        inner.delete()
        Article.objects.filter(pk=made[4].pk).update(stock=45)
        try:
            with transaction.atomic():
                Maker.objects.create(name="Half", country="fr")
                Maker.objects.create(name="Acme", country="fr")
        except IntegrityError:
            pass
        assert not Maker.objects.filter(name="Half").exists()
    report = Line.objects.values("article__maker__name", "order__user__username").annotate(pieces=Sum("pieces"))
    assert list(report) == [{"article__maker__name": "Acme", "order__user__username": "ann", "pieces": 6}], list(report)
    assert ann.orders.annotate(pieces=Sum("lines__pieces")).order_by("pieces").values_list("pieces", flat=True)[1] == 3 and done.lines.count() == 1


def administration(root):
    setup_test_environment()
    client = Client()
    assert client.login(username="root", password="more secret")
    page = client.get("/admin/shop/article/", {"q": "thing", "kind": "toy", "o": "-3"})
    assert page.status_code == 200 and page.context["cl"].result_count == 4, page.status_code
    assert client.get(f"/admin/auth/user/{root.pk}/change/").status_code == 200
    reply = client.post("/admin/auth/group/add/", {"name": "buyers"})
    assert reply.status_code == 302 and Group.objects.filter(name="buyers").exists(), reply.status_code
    assert root.logentry_set.count() == 1
    client.logout()
    assert client.get("/admin/").status_code == 302


def deletions(ann, acme, made):
    raises(models.ProtectedError, ann.delete)
    made[3].delete()
    assert Line.objects.filter(article=None).count() == 1
    deleted, kinds = acme.delete()
    assert kinds == {"shop.Maker": 1, "shop.Article": 4, "shop.Article_labels": 5}, kinds
    assert Article.objects.count() == 3 and Line.objects.filter(article=None).count() == 3
    assert Order.objects.all().delete() == (5, {"shop.Line": 3, "shop.Order": 2})
    assert ann.delete()[1]["auth.User"] == 1
    call_command("flush", interactive=False, verbosity=0)
    assert Article.objects.count() == 0 and "by_kind" in connection.database["shop_article"].index_information()


def main():
    connection.ensure_connection()
    connection.connection.drop_database(DATABASE)
    assert connection.features._supports_transactions == SET, "the server does not look like what TENON_URI says"
    migrate()
    ann, root = users()
    acme, bolt, idle, made = stock()
    queries(bolt, made)
    reports()
    changes(bolt, idle)
    orders(ann, made)
    administration(root)
    for name in connection.database.list_collection_names():
        assert connection.database.command("validate", name)["valid"], name
    deletions(ann, acme, made)
    connection.connection.drop_database(DATABASE)
    connection.close_pool()
    print("shop checks passed: migrations, users, queries, reports, changes, orders, admin, deletes" + (", transactions" if SET else ""))


main()
