"""A library's catalogue on MongoEngine: models, loans, covers and reports. TENON_URI names the server, whose database
`t_mongoengine` is this program's own. It ends with 0 and a line that says what it checked, or with a traceback."""

import datetime
import enum
import os
import uuid
from decimal import Decimal

import mongoengine as me
from bson import ObjectId
from mongoengine import signals
from mongoengine.queryset.visitor import Q

DATABASE = "t_mongoengine"
DAY = datetime.datetime(2024, 3, 1)


class State(enum.Enum):
    FREE = "free"
    LENT = "lent"
    LOST = "lost"


class Address(me.EmbeddedDocument):
    street = me.StringField(required=True)
    town = me.StringField(required=True)


class Branch(me.Document):
    name = me.StringField(required=True, unique=True)
    address = me.EmbeddedDocumentField(Address)
    place = me.PointField()
    yard = me.PolygonField()
    meta = {"collection": "branches"}


class Person(me.Document):
    """The head of two classes in one collection."""

    name = me.StringField(required=True, max_length=60)
    email = me.EmailField(unique=True, sparse=True)
    meta = {"collection": "people", "allow_inheritance": True, "indexes": ["name"]}


class Author(Person):
    born = me.DateField()
    pseudonyms = me.SortedListField(me.StringField())


class Reader(Person):
    branch = me.ReferenceField(Branch, reverse_delete_rule=me.NULLIFY)
    fees = me.DecimalField(min_value=0, precision=2, default=Decimal("0"))
    fees_128 = me.Decimal128Field(default=Decimal("0"))
    favourites = me.ListField(me.ReferenceField("Book"))


class Copy(me.EmbeddedDocument):
    number = me.IntField(required=True, min_value=1)
    state = me.EnumField(State, default=State.FREE)


class Note(me.EmbeddedDocument):
    by = me.StringField()
    text = me.StringField()
    stars = me.IntField(min_value=1, max_value=5)


class Books(me.QuerySet):
    def of(self, author):
        return self.filter(authors=author)


class Book(me.Document):
    title = me.StringField(required=True)
    series = me.StringField()
    volume = me.IntField()
    authors = me.ListField(me.ReferenceField(Author, reverse_delete_rule=me.DENY))
    copies = me.EmbeddedDocumentListField(Copy)
    notes = me.ListField(me.EmbeddedDocumentField(Note))
    tags = me.ListField(me.StringField())
    price = me.DecimalField(precision=2)
    pages = me.IntField()
    published = me.DateTimeField()
    blurb = me.StringField()
    facts = me.DictField()
    held_by = me.MapField(me.IntField())
    cover = me.FileField(collection_name="covers")
    isbn_hash = me.StringField()
    changes = me.IntField(default=0)
    meta = {
        "collection": "books",
        "queryset_class": Books,
        "ordering": ["title"],
        "indexes": [
            {"fields": ["series", "volume"], "unique": True, "partialFilterExpression": {"series": {"$exists": True}}},
            {"fields": ["$title", "$blurb"], "default_language": "english", "weights": {"title": 10, "blurb": 2}},
            ["-published", "tags"],
            "#isbn_hash",
        ],
    }

    def clean(self):
        if len({copy.number for copy in self.copies}) < len(self.copies):
            raise me.ValidationError("two copies have one number")


Book.register_delete_rule(Reader, "favourites", me.PULL)


class Loan(me.Document):
    book = me.ReferenceField(Book, required=True, reverse_delete_rule=me.CASCADE, dbref=True)
    reader = me.LazyReferenceField(Reader, required=True, reverse_delete_rule=me.CASCADE)
    subject = me.GenericReferenceField()
    since = me.DateTimeField(default=DAY)
    meta = {"collection": "loans", "indexes": [("reader", "-since"), {"fields": ["book"], "cls": False}]}


class Visit(me.Document):
    """Ends by itself."""

    reader = me.StringField()
    at = me.DateTimeField()
    meta = {"collection": "visits", "indexes": [{"fields": ["at"], "expireAfterSeconds": 3600}]}


class Ticket(me.Document):
    number = me.SequenceField(primary_key=True)
    text = me.StringField()
    key = me.UUIDField(binary=True)
    meta = {"collection": "tickets"}


class Event(me.DynamicDocument):
    meta = {"collection": "events", "max_documents": 5, "max_size": 4096}


def raises(error, work, *arguments, **named):
    try:
        work(*arguments, **named)
    except error as found:
        return found
    raise AssertionError(f"no {error.__name__}")


def count_changes(sender, document, **_):
    document.changes += 1


def stock():
    """What everything else begins with."""
    main = Branch(
        name="Main", address=Address(street="High Street 1", town="Leeds"), place=[-1.55, 53.80],
        yard=[[[-1.56, 53.79], [-1.54, 53.79], [-1.54, 53.81], [-1.56, 53.81], [-1.56, 53.79]]],
    ).save()
    harbour = Branch(name="Harbour", address=Address(street="Quay 7", town="Hull"), place=[-0.33, 53.74]).save()
    ann = Author(name="Ann Ames", email="ann@example.org", born=datetime.date(1950, 5, 17), pseudonyms=["Zed", "Alf"]).save()
    bob = Author(name="Bob Burr", born=datetime.date(1961, 1, 2)).save()
    books = [
        Book(
            title=f"Rivers {volume}", series="Rivers", volume=volume, authors=[ann, bob] if volume % 2 else [ann], pages=100 * volume,
            price=Decimal("9.50") + volume, published=DAY + datetime.timedelta(days=volume), tags=["water", f"t{volume % 3}"],
            blurb="All about rivers and their fishes" if volume < 4 else "Nothing about boats",
            copies=[Copy(number=number) for number in range(1, volume + 1)], notes=[Note(by="cy", text="fine", stars=volume % 5 + 1)],
            facts={"height": volume, "where": {"shelf": "A", "row": volume}},
        )
        for volume in range(1, 7)
    ]
    inserted = Book.objects.insert(books)
    assert len(inserted) == 6 and all(isinstance(book.id, ObjectId) for book in inserted)
    hills = Book(title="Hills", authors=[bob], pages=77, price=Decimal("3.25"), published=DAY, tags=["land"], blurb="Hills, no water").save()
    cy = Reader(name="Cy Cole", email="cy@example.org", branch=main, fees=Decimal("1.25"), fees_128=Decimal("0.10"), favourites=[books[0], hills]).save()
    dee = Reader(name="Dee Dow", email="dee@example.org", branch=harbour).save()
    return main, ann, bob, books, hills, cy, dee


def check_models(ann, hills, cy):
    again = Author.objects.get(id=ann.id)
    assert (again.born, list(again.pseudonyms)) == (datetime.date(1950, 5, 17), ["Alf", "Zed"])
    assert hills.changes == 1 and Book.objects.get(title="Hills").changes == 1
    assert Book.objects(title="Rivers 1").get().changes == 0, "a bulk insert sends no signal of a save"
    assert Person.objects.count() == 4 and Author.objects.count() == 2 and Reader.objects.count() == 2
    assert [type(person).__name__ for person in Person.objects.order_by("name")] == ["Author", "Author", "Reader", "Reader"]
    found = Reader.objects.get(email="cy@example.org")
    assert (found.fees, found.fees_128, found.branch.name, found.favourites[1].title) == (Decimal("1.25"), Decimal("0.10"), "Main", "Hills")
    assert Reader.objects(fees_128__gte=Decimal("0.1")).count() == 1
    raises(me.ValidationError, Reader(name="x" * 61).save)
    raises(me.ValidationError, Book(title="Twice", copies=[Copy(number=1), Copy(number=1)]).save)
    raises(me.NotUniqueError, Reader(name="Other", email="cy@example.org").save)
    raises(me.NotUniqueError, Book(title="Rivers again", series="Rivers", volume=3).save)
    raises(me.errors.BulkWriteError, Book.objects.insert, [Book(title="n1"), Book(title="n2", series="Rivers", volume=1)])
    assert Book.objects(title="n1").delete() == 1, "an ordered insert keeps what came before the fault"
    raises(me.DoesNotExist, Book.objects.get, title="None")
    raises(me.MultipleObjectsReturned, Book.objects.get, series="Rivers")
    stale = Book.objects.get(title="Hills")
    raises(me.SaveConditionError, stale.save, save_condition={"changes": 99})
    dangling = Loan(book=hills, reader=cy).save()
    assert dangling.reader.fetch().name == "Cy Cole" and dangling.book.title == "Hills"
    dangling.delete()


def check_indexes():
    indexes = Book._get_collection().index_information()
    compound = indexes["series_1_volume_1"]
    assert compound["unique"] and compound["partialFilterExpression"] == {"series": {"$exists": True}}, indexes
    text = [index for index in indexes.values() if "textIndexVersion" in index]
    assert len(text) == 1 and dict(text[0]["weights"]) == {"title": 10, "blurb": 2}, indexes
    assert indexes["published_-1_tags_1"]["key"] == [("published", -1), ("tags", 1)]
    assert indexes["isbn_hash_hashed"]["key"] == [("isbn_hash", "hashed")]
    assert Branch._get_collection().index_information()["place_2dsphere"]["key"] == [("place", "2dsphere")]
    assert Visit._get_collection().index_information()["at_1"]["expireAfterSeconds"] == 3600
    assert Person._get_collection().index_information()["_cls_1_name_1"]["key"] == [("_cls", 1), ("name", 1)]
    for model in (Book, Branch, Person, Reader, Loan, Visit):
        # What is there already is taken as it is.
        model.ensure_indexes()
    assert Visit.compare_indexes() == {"missing": [], "extra": []}, Visit.compare_indexes()
    plan = Book.objects(series="Rivers", volume=2).order_by().explain()
    assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"]), plan


def check_queries(ann, bob):
    def titles(query):
        return [book.title for book in query]

    rivers = [f"Rivers {volume}" for volume in range(1, 7)]
    assert titles(Book.objects) == ["Hills", *rivers]
    assert titles(Book.objects(Q(pages__lt=200) | Q(pages__gte=600))) == ["Hills", "Rivers 1", "Rivers 6"]
    assert titles(Book.objects((Q(tags="water") | Q(tags="none")) & Q(pages__gt=100) & Q(volume__nin=[3, 4]))) == ["Rivers 2", "Rivers 5", "Rivers 6"]
    assert titles(Book.objects(title__istartswith="riv", title__endswith="4")) == ["Rivers 4"]
    assert titles(Book.objects(title__icontains="ILL")) == ["Hills"]
    assert titles(Book.objects(title__not__startswith="Riv")) == ["Hills"]
    assert titles(Book.objects(series__exists=False)) == ["Hills"] and titles(Book.objects(pages__mod=(200, 0))) == ["Rivers 2", "Rivers 4", "Rivers 6"]
    assert titles(Book.objects(copies__size=2)) == ["Rivers 2"] and titles(Book.objects(tags__all=["water", "t0"])) == ["Rivers 3", "Rivers 6"]
    assert titles(Book.objects(copies__match={"number": 5, "state": State.FREE})) == ["Rivers 5", "Rivers 6"]
    assert titles(Book.objects(notes__0__stars__gte=4)) == ["Rivers 3", "Rivers 4"]
    assert titles(Book.objects(facts__where__row=6)) == ["Rivers 6"]
    assert titles(Book.objects(price__gt=Decimal("14.5"))) == ["Rivers 6"]
    assert titles(Book.objects(__raw__={"$expr": {"$gt": ["$pages", {"$multiply": ["$volume", 99]}]}, "volume": {"$lt": 3}})) == ["Rivers 1", "Rivers 2"]
    assert titles(Book.objects.of(bob)) == ["Hills", "Rivers 1", "Rivers 3", "Rivers 5"] and Book.objects.of(ann).count() == 6
    assert titles(Book.objects.order_by("-pages")[1:3]) == ["Rivers 5", "Rivers 4"]
    pages = [titles(Book.objects.order_by("tags", "-title").skip(3 * page).limit(3)) for page in range(3)]
    assert pages == [["Hills", "Rivers 6", "Rivers 3"], ["Rivers 4", "Rivers 1", "Rivers 5"], ["Rivers 2"]], pages
    only = Book.objects.only("title", "facts.where").exclude("facts.where.shelf").get(volume=2)
    assert only.pages is None and only.title == "Rivers 2"
    assert Book.objects.fields(slice__copies=[1, 2]).get(volume=4).copies[0].number == 2
    assert list(Book.objects(volume__lte=2).scalar("title", "pages")) == [("Rivers 1", 100), ("Rivers 2", 200)]
    assert list(Book.objects(volume=1).values_list("changes")) == [0]
    assert sorted(Book.objects.distinct("tags")) == ["land", "t0", "t1", "t2", "water"]
    assert [author.name for author in sorted(Book.objects(volume=1).distinct("authors"), key=lambda author: author.name)] == ["Ann Ames", "Bob Burr"]
    assert Book.objects.sum("pages") == 2177 and Book.objects(series="Rivers").average("pages") == 350
    assert Book.objects.first().title == "Hills" and Book.objects(title="None").first() is None
    assert Book.objects.in_bulk([Book.objects.get(volume=1).id]).popitem()[1].title == "Rivers 1"
    assert Book.objects(series="Rivers", volume=1).hint("series_1_volume_1").order_by().count() == 1
    assert titles(Book.objects(title="rivers 1").collation({"locale": "en", "strength": 2})) == ["Rivers 1"]
    assert [raw["title"] for raw in Book.objects.batch_size(2).as_pymongo()] == ["Hills", *rivers]
    assert Book.objects(volume=1).select_related(2)[0].authors[0].name == "Ann Ames"


def check_aggregation():
    by_tag = Book.objects(series="Rivers").aggregate([
        {"$unwind": "$tags"},
        {"$group": {"_id": "$tags", "pages": {"$sum": "$pages"}, "titles": {"$push": "$title"}}},
        {"$sort": {"pages": -1, "_id": 1}},
    ])
    assert [(row["_id"], row["pages"]) for row in by_tag] == [("water", 2100), ("t0", 900), ("t2", 700), ("t1", 500)]
    joined = list(Book.objects(volume__gte=5).aggregate([
        {"$lookup": {"from": "people", "localField": "authors", "foreignField": "_id", "as": "who"}},
        {"$project": {"title": 1, "names": {"$sortArray": {"input": "$who.name", "sortBy": 1}}, "free": {"$size": "$copies"}}},
    ]))
    assert [(row["title"], row["names"], row["free"]) for row in joined] == [("Rivers 5", ["Ann Ames", "Bob Burr"], 5), ("Rivers 6", ["Ann Ames"], 6)]
    months = list(Book.objects.order_by().aggregate([
        {"$facet": {
            "days": [{"$group": {"_id": {"$dateToString": {"date": "$published", "format": "%Y-%m"}}, "n": {"$sum": 1}}}],
            "buckets": [{"$bucket": {"groupBy": "$pages", "boundaries": [0, 100, 400, 1000], "output": {"n": {"$sum": 1}}}}],
        }},
    ]))
    assert months == [{"days": [{"_id": "2024-03", "n": 7}], "buckets": [{"_id": 0, "n": 1}, {"_id": 100, "n": 3}, {"_id": 400, "n": 3}]}], months


def check_updates(books, hills):
    first = books[0]
    assert Book.objects(id=first.id).update_one(inc__pages=5, set__price=Decimal("1.00"), add_to_set__tags=["new", "water"], unset__blurb=True) == 1
    first.reload()
    assert (first.pages, first.price, first.blurb, list(first.tags)) == (105, Decimal("1.00"), None, ["water", "t1", "new"])
    Book.objects(id=first.id).update_one(push__copies=Copy(number=9, state=State.LOST), pull__tags="new", set__held_by__main=3, max__pages=200, mul__volume=1)
    Book.objects(id=first.id).update_one(push_all__tags=["a", "b"])
    Book.objects(id=first.id).update_one(pull_all__tags=["a", "t1"], pop__copies=-1)
    Book.objects(id=first.id).update_one(push__tags__0=["front"])
    first.reload()
    assert ([copy.number for copy in first.copies], list(first.tags), first.pages, dict(first.held_by)) == ([9], ["front", "water", "b"], 200, {"main": 3})
    assert first.copies.get(number=9).state is State.LOST
    assert Book.objects(copies__number=4, volume=6).update(set__copies__S__state=State.LENT) == 1
    assert Book.objects.get(volume=6).copies.filter(state=State.LENT).count() == 1
    assert Book.objects(series="Rivers").update(inc__changes=2) == 6
    assert Book.objects(series="Rivers").update(set__facts__checked=True, full_result=True).modified_count == 6
    assert Book.objects(volume=2).update(__raw__=[{"$set": {"pages": {"$add": ["$pages", "$volume"]}}}]) == 1
    assert Book.objects(volume=2).scalar("pages").get() == 202
    modified = Book.objects(title="Hills").modify(inc__pages=1, new=True)
    assert modified.pages == 78 and hills.modify({"pages": 78}, set__pages=80) and not hills.modify({"pages": 78}, set__pages=81)
    made = Book.objects(title="Dales").upsert_one(set__pages=12, set_on_insert__tags=["land"])
    assert (made.title, made.pages, list(made.tags)) == ("Dales", 12, ["land"])
    assert Book.objects(title="Dales").upsert_one(set__pages=13).id == made.id and Book.objects(title="Dales").modify(remove=True).pages == 13
    assert Book.objects(title="Dales").count() == 0
    # A save sends the difference alone.
    mine, other = Book.objects.get(volume=3), Book.objects.get(volume=3)
    mine.tags.append("mine")
    mine.facts["where"]["row"] = 33
    other.notes.append(Note(by="dee", text="dull", stars=1))
    mine.save()
    other.save()
    mine.reload()
    assert "mine" in mine.tags and [note.by for note in mine.notes] == ["cy", "dee"] and mine.facts["where"] == {"shelf": "A", "row": 33}
    mine.copies.filter(number=2).update(state=State.LENT)
    mine.copies.create(number=8)
    mine.copies.filter(number=1).delete()
    mine.save()
    assert [(copy.number, copy.state.value) for copy in Book.objects.get(volume=3).copies] == [(2, "lent"), (3, "free"), (8, "free")]
    with me.context_managers.switch_collection(Ticket, "old_tickets") as Old:
        Old(text="old").save()
        assert Old.objects.count() == 1
    assert Ticket.objects.count() == 0


def check_special_collections():
    tickets = [Ticket(text=str(n), key=uuid.UUID(int=n)).save() for n in range(3)]
    assert [ticket.number for ticket in tickets] == [tickets[0].number + n for n in range(3)] and Ticket.objects.get(key=uuid.UUID(int=2)).text == "2"
    for n in range(8):
        Event(n=n, **{f"field{n}": [n, {"deep": n}]}).save()
    assert [event.n for event in Event.objects] == [3, 4, 5, 6, 7] and Event.objects.get(field5__1__deep=5).n == 5

    near = Branch.objects(place__near=[-0.4, 53.75], place__max_distance=200_000)
    assert [branch.name for branch in near] == ["Harbour", "Main"]
    assert [branch.name for branch in Branch.objects(place__near=[-0.4, 53.75], place__max_distance=20_000)] == ["Harbour"]
    around = {"type": "Polygon", "coordinates": [[[-2, 53], [-1, 53], [-1, 54], [-2, 54], [-2, 53]]]}
    assert [branch.name for branch in Branch.objects(place__geo_within=around)] == ["Main"]
    assert [branch.name for branch in Branch.objects(yard__geo_intersects=[-1.55, 53.8])] == ["Main"]
    assert [branch.name for branch in Branch.objects(place__geo_within_sphere=[[-0.33, 53.74], 10 / 6371])] == ["Harbour"]

    found = Book.objects.search_text("river fish").order_by("$text_score")
    assert [book.title for book in found][-1] != "Rivers 3" and {book.title for book in found} == {f"Rivers {n}" for n in range(1, 7)}
    assert found[0].get_text_score() > 1 and Book.objects.search_text('"about boats" -fish').count() == 3

    book = Book.objects.get(volume=5)
    picture = bytes(range(256)) * 2500
    book.cover.put(picture, content_type="image/png", filename="five.png")
    book.save()
    again = Book.objects.get(volume=5)
    assert again.cover.read() == picture and again.cover.content_type == "image/png" and again.cover.length == len(picture)
    database = Book._get_db()
    assert database["covers.chunks"].count_documents({}) == 3
    again.cover.replace(b"small", content_type="image/gif")
    again.save()
    assert Book.objects.get(volume=5).cover.read() == b"small" and database["covers.chunks"].count_documents({}) == 1
    again.cover.delete()
    again.save()
    assert not Book.objects.get(volume=5).cover and database["covers.files"].count_documents({}) == 0


def check_deletes(main, ann, books, hills, cy, dee):
    for reader in (cy, dee):
        Loan(book=hills, reader=reader, subject=main).save()
    Loan(book=books[1], reader=dee, subject=ann).save()
    assert [type(loan.subject).__name__ for loan in Loan.objects.order_by("id")] == ["Branch", "Branch", "Author"]
    assert Loan.objects(reader=dee).count() == 2 and Loan.objects(book=hills).count() == 2
    raises(me.OperationError, ann.delete)
    main.delete()
    cy.reload()
    assert cy.branch is None and dee.branch.name == "Harbour"
    hills.delete()
    cy.reload()
    assert Loan.objects.count() == 1 and [book.title for book in cy.favourites] == ["Rivers 1"]
    assert Reader.objects(name__startswith="Dee").delete() == 1 and Loan.objects.count() == 0
    assert Book.objects(volume__lte=2).delete() == 2 and Book.objects.count() == 4


def main():
    connection = me.connect(DATABASE, host=os.environ["TENON_URI"], uuidRepresentation="standard")
    connection.drop_database(DATABASE)
    signals.pre_save.connect(count_changes, sender=Book)
    branch, ann, bob, books, hills, cy, dee = stock()
    check_models(ann, hills, cy)
    check_indexes()
    check_queries(ann, bob)
    check_aggregation()
    check_updates(books, hills)
    check_special_collections()
    check_deletes(branch, ann, books, hills, cy, dee)
    database = connection[DATABASE]
    for name in database.list_collection_names():
        assert database.command("validate", name)["valid"], name
    connection.drop_database(DATABASE)
    me.disconnect()
    print("library checks passed: models, indexes, queries, aggregation, updates, files, places, texts, deletes")


main()
