"""Geometries: what 2dsphere and 2d indexes find is what a scan finds, and near things come in the order of distance."""

import math
import random

import pymongo
import pytest
from bson import Decimal128, Int64
from pymongo.errors import OperationFailure
from plans import stages, winning

EARTH_RADIUS_METRES = 6_378_100


def point(longitude, latitude):
    return {"type": "Point", "coordinates": [longitude, latitude]}


def square(west, south, side):
    east, north = west + side, south + side
    return {"type": "Polygon", "coordinates": [[[west, south], [east, south], [east, north], [west, north], [west, south]]]}


def angle(a, b):
    """Between two places, in radians, by the haversine formula."""
    (lon1, lat1), (lon2, lat2) = ([math.radians(degrees) for degrees in place] for place in (a, b))
    h = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * math.asin(min(1, math.sqrt(h)))


def random_geometry(rng):
    x, y = rng.uniform(-170, 170), rng.uniform(-80, 80)
    kind = rng.randrange(5)
    if kind == 0:
        return [x, y]
    if kind == 1:
        return {"type": "LineString", "coordinates": [[x, y], [x + rng.uniform(0.1, 8), y + rng.uniform(-5, 5)]]}
    if kind == 2:
        return square(x, y, rng.uniform(0.01, 9))
    if kind == 3:
        return {"type": "MultiPoint", "coordinates": [[x, y], [rng.uniform(-170, 170), rng.uniform(-80, 80)]]}
    return point(x, y)


def test_2dsphere_finds_what_a_scan_finds(db, seed):
    rng = random.Random(seed)
    places = db.places
    places.create_index([("loc", "2dsphere"), ("kind", 1)])
    spec = places.index_information()["loc_2dsphere_kind_1"]
    assert spec["2dsphereIndexVersion"] == 3 and spec["key"] == [("loc", "2dsphere"), ("kind", 1)]
    places.insert_many([{"_id": n, "loc": random_geometry(rng), "kind": n % 3} for n in range(400)])
    for other in ({"_id": 1000}, {"_id": 1001, "loc": None}, {"_id": 1002, "loc": []}):
        places.insert_one(other)
    found = 0
    for _ in range(60):
        x, y, side = rng.uniform(-170, 120), rng.uniform(-80, 40), rng.uniform(1, 45)
        for operator in (
            {"$geoWithin": {"$geometry": square(x, y, side)}},
            {"$geoIntersects": {"$geometry": square(x, y, side)}},
            {"$geoIntersects": {"$geometry": {"type": "LineString", "coordinates": [[x, y], [x + side, y + side]]}}},
            {"$geoWithin": {"$centerSphere": [[x, y], math.radians(side)]}},
        ):
            query = {"loc": operator, "kind": {"$lt": 2}}
            by_index = places.find(query, hint="loc_2dsphere_kind_1")
            scan = {d["_id"] for d in places.find(query, hint=[("$natural", 1)])}
            assert {d["_id"] for d in by_index} == scan, query
            found += len(scan)
    assert found > 100
    cursor = places.find({"loc": {"$geoWithin": {"$geometry": square(0, 0, 5)}}})
    assert stages(winning(cursor)) == ["FETCH", "IXSCAN"]
    assert db.command("validate", "places", full=True)["valid"]
    for n in range(0, 400, 2):
        places.update_one({"_id": n}, {"$set": {"loc": random_geometry(rng)}})
    places.delete_many({"kind": 1})
    assert db.command("validate", "places", full=True)["valid"]


def test_near_things_come_in_the_order_of_distance(db, seed):
    rng = random.Random(seed)
    db.sphere.create_index([("loc", "2dsphere")])
    db.plane.create_index([("loc", "2d")])
    at = {n: (rng.uniform(-179, 179), rng.uniform(-89, 89)) for n in range(1000)}
    at |= {n: (13 + rng.uniform(-1, 1), 52 + rng.uniform(-1, 1)) for n in range(1000, 1500)}
    db.sphere.insert_many([{"_id": n, "loc": point(*place), "even": n % 2 == 0} for n, place in at.items()])
    db.plane.insert_many([{"_id": n, "loc": list(place)} for n, place in at.items()])
    for center in ((13.4, 52.5), (179.9, 0.1), (0, 89.9), (-120.0, -45.0)):
        order = sorted(at, key=lambda n: angle(center, at[n]))
        near = db.sphere.find({"loc": {"$near": {"$geometry": point(*center)}}})
        assert [d["_id"] for d in near] == order
        most, least = 3_000_000, 500_000
        between = [n for n in order if least <= angle(center, at[n]) * EARTH_RADIUS_METRES <= most and n % 2 == 0]
        query = {"$nearSphere": {"$geometry": point(*center), "$maxDistance": most, "$minDistance": least}}
        assert [d["_id"] for d in db.sphere.find({"loc": query, "even": True})] == between
        radians = db.plane.find({"loc": {"$nearSphere": list(center), "$maxDistance": 1.0}})
        assert [d["_id"] for d in radians] == [n for n in order if angle(center, at[n]) <= 1.0]
        flat = sorted(at, key=lambda n: math.dist(center, at[n]))
        assert [d["_id"] for d in db.plane.find({"loc": {"$near": list(center)}}).limit(700)] == flat[:700]
        stage = {"near": point(*center), "distanceField": "is.far", "includeLocs": "is.at", "maxDistance": most, "query": {"even": True}}
        given = list(db.sphere.aggregate([{"$geoNear": stage}, {"$limit": 50}]))
        assert [d["_id"] for d in given] == [n for n in order if angle(center, at[n]) * EARTH_RADIUS_METRES <= most and n % 2 == 0][:50]
        for document in given:
            metres = angle(center, at[document["_id"]]) * EARTH_RADIUS_METRES
            assert document["is"]["far"] == pytest.approx(metres, abs=0.01)
            assert document["is"]["at"] == document["loc"]
    assert stages(winning(db.sphere.find({"loc": {"$near": {"$geometry": point(1, 1)}}})))[0] == "GEO_NEAR_2DSPHERE"
    assert stages(winning(db.plane.find({"loc": {"$near": [1, 1]}})))[0] == "GEO_NEAR_2D"
    few = db.sphere.find({"loc": {"$near": {"$geometry": point(13.4, 52.5)}}}).limit(3).explain()["executionStats"]
    assert few["totalKeysExamined"] < 300
    by_name = db.sphere.find({"loc": {"$near": {"$geometry": point(0, 0)}}}).sort("_id", 1).limit(3)
    assert [d["_id"] for d in by_name] == [0, 1, 2]
    assert db.sphere.count_documents({"loc": {"$geoWithin": {"$centerSphere": [[0, 0], math.pi]}}}) == len(at)
    changed = db.sphere.update_one({"loc": {"$near": {"$geometry": point(13.4, 52.5)}}}, {"$set": {"seen": True}})
    assert changed.modified_count == 1
    nearest = min(at, key=lambda n: angle((13.4, 52.5), at[n]))
    assert db.sphere.find_one({"seen": True})["_id"] == nearest


def test_a_2d_index_is_not_searched_below_the_least_distance(db, seed):
    """Around a point on the sphere all that was nearer was read, and then left out."""
    rng = random.Random(seed)
    db.c.create_index([("loc", "2d")])
    for center in ((13, 52), (179.5, -20), (-60, 80)):
        db.c.delete_many({})
        crowd = {n: (center[0] - rng.uniform(0, 2), center[1] + rng.uniform(-2, 2)) for n in range(3000)}
        at = crowd | {n: (rng.uniform(-179, 179), rng.uniform(-89, 89)) for n in range(3000, 3300)}
        db.c.insert_many([{"_id": n, "loc": list(place)} for n, place in at.items()])
        for least, most in ((0.25, 10), (0.25, 1.0), (1.5, 10), (3.0, 10)):
            order = sorted(at, key=lambda n: angle(center, at[n]))
            between = [n for n in order if least <= angle(center, at[n]) <= most]
            assert between or least == 3.0, "all but the last rings are wide enough to have some"
            query = {"loc": {"$nearSphere": list(center), "$minDistance": least, "$maxDistance": most}}
            assert [d["_id"] for d in db.c.find(query)] == between
            assert db.c.find(query).explain()["executionStats"]["totalKeysExamined"] < 1000
            stage = {"near": list(center), "spherical": True, "distanceField": "far", "minDistance": least, "maxDistance": most}
            given = list(db.c.aggregate([{"$geoNear": stage}]))
            assert [d["_id"] for d in given] == between
            assert all(least <= d["far"] <= most for d in given)
        flat = sorted((n for n in at if 20 <= math.dist(center, at[n]) <= 90), key=lambda n: math.dist(center, at[n]))
        assert flat
        query = {"loc": {"$near": list(center), "$minDistance": 20, "$maxDistance": 90}}
        assert [d["_id"] for d in db.c.find(query)] == flat
        assert db.c.find(query).explain()["executionStats"]["totalKeysExamined"] < 1000


def test_shapes_of_ten_thousand_points_are_told_apart(db):
    def ring(x, y, radius):
        turns = [math.tau * n / 10_000 for n in range(10_000)]
        corners = [[x + radius * math.cos(turn), y + radius * math.sin(turn) * (1 - n % 2 / 1000)] for n, turn in enumerate(turns)]
        return [*corners, corners[0]]

    shapes = {"inside": (10, 10, 4), "across": (14, 10, 4), "around": (10, 10, 6), "beside": (30, 10, 4)}
    db.c.create_index([("area", "2dsphere")])
    for name, (x, y, radius) in shapes.items():
        db.c.insert_one({"_id": name, "area": {"type": "Polygon", "coordinates": [ring(x, y, radius)]}})
        db.c.insert_one({"_id": f"line {name}", "area": {"type": "LineString", "coordinates": ring(x, y, radius)}})
    asked = {"$geometry": {"type": "Polygon", "coordinates": [ring(10, 10, 5)]}}
    met = {d["_id"] for d in db.c.find({"area": {"$geoIntersects": asked}}, {"_id": 1})}
    assert met == {"inside", "line inside", "across", "line across", "around"}
    within = {d["_id"] for d in db.c.find({"area": {"$geoWithin": asked}}, {"_id": 1})}
    assert within == {"inside", "line inside"}


def test_2d_finds_what_a_scan_finds(db, seed):
    rng = random.Random(seed)
    db.c.create_index([("at", "2d"), ("kind", 1)], min=-500, max=500, bits=20)
    spec = db.c.index_information()["at_2d_kind_1"]
    assert (spec["min"], spec["max"], spec["bits"]) == (-500, 500, 20)
    documents = [{"_id": n, "at": [rng.uniform(-400, 400), rng.uniform(-400, 400)], "kind": n % 4} for n in range(600)]
    documents.append({"_id": 1000, "at": [[1, 1], {"x": 300, "y": 300}], "kind": [1, 2]})
    documents.append({"_id": 1001})
    db.c.insert_many(documents)
    for _ in range(40):
        x, y, side = rng.uniform(-400, 300), rng.uniform(-400, 300), rng.uniform(1, 300)
        for shape in (
            {"$box": [[x, y], [x + side, y + side]]},
            {"$center": [[x, y], side]},
            {"$polygon": [[x, y], [x + side, y], [x, y + side]]},
        ):
            query = {"at": {"$geoWithin": shape}, "kind": 1}
            scan = sorted(d["_id"] for d in db.c.find(query, hint=[("$natural", 1)]))
            assert sorted(d["_id"] for d in db.c.find(query, hint="at_2d_kind_1")) == scan
    assert [d["_id"] for d in db.c.find({"at": {"$near": [300, 300], "$maxDistance": 0.1}})] == [1000]
    assert db.command("validate", "c", full=True)["valid"]
    for wrong, code in (([600, 0], 13027), (["x", 0], 16804), ([1, "x"], 13026), ({"x": 1}, 13068)):
        with pytest.raises(OperationFailure) as refused:
            db.c.insert_one({"at": wrong})
        assert refused.value.code == code, wrong


def test_what_is_no_geometry_is_refused_with_an_index(db):
    db.c.create_index([("loc", "2dsphere")])
    for wrong in (point(200, 0), {"type": "Point"}, "here", {"type": "LineString", "coordinates": [[0, 0]]}, [0]):
        with pytest.raises(OperationFailure) as refused:
            db.c.insert_one({"loc": wrong})
        assert refused.value.code == 16755, wrong
    db.d.insert_one({"loc": point(200, 0)})
    with pytest.raises(OperationFailure) as refused:
        db.d.create_index([("loc", "2dsphere")])
    assert refused.value.code == 16755


def test_limits_hold_what_was_told_to_be_as_far(db, seed):
    """Clients ask for the next page with the distance of the last document."""
    rng = random.Random(seed)
    db.c.create_index([("loc", "2dsphere")])
    db.c.insert_many([{"_id": n, "loc": point(rng.uniform(-180, 180), rng.uniform(-90, 90))} for n in range(200)])
    near = {"near": point(10, 20), "distanceField": "d", "distanceMultiplier": 0.001}
    told = list(db.c.aggregate([{"$geoNear": near}, {"$set": {"metres": {"$meta": "geoNearDistance"}}}]))
    assert len(told) == 200
    for document in told:
        assert document["d"] == document["metres"] * 0.001
        at = {"$geometry": point(10, 20), "$minDistance": document["metres"], "$maxDistance": document["metres"]}
        assert [d["_id"] for d in db.c.find({"loc": {"$near": at}})] == [document["_id"]]


@pytest.mark.parametrize("kind", ["2dsphere", "2d"])
def test_what_is_nearer_than_the_least_distance_is_not_read(db, kind):
    places = [[x / 4, y / 4] for x in range(-80, 81, 2) for y in range(-80, 81, 2)]
    if kind == "2dsphere":
        def distance(place):
            return angle((0, 0), place) * EARTH_RADIUS_METRES

        least = 1_500_000
        query = {"loc": {"$near": {"$geometry": point(0, 0), "$minDistance": least}}}
    else:
        def distance(place):
            return math.hypot(*place)

        least = 14
        query = {"loc": {"$near": [0, 0], "$minDistance": least}}
    # Cells do not end at circles: what is just within may be read.
    places = [place for place in places if not 0.8 * least < distance(place) < least]
    distances = [distance(place) for place in places]
    db.c.insert_many({"_id": n, "loc": place, "d": d} for n, (place, d) in enumerate(zip(places, distances)))
    db.c.create_index([("loc", kind)])
    nearer = sum(d < least for d in distances)
    assert nearer > 1000
    found = [document["d"] for document in db.c.find(query, limit=20)]
    expected = sorted(d for d in distances if d >= least)[:20]
    assert found == pytest.approx(expected)
    assert len(list(db.c.find(query))) == len(places) - nearer
    explained = db.command("explain", {"find": "c", "filter": query}, verbosity="executionStats")
    assert explained["executionStats"]["totalDocsExamined"] < len(places) - nearer / 2


def test_a_few_of_very_many_at_one_place(db):
    db.c.create_index([("loc", "2dsphere")])
    db.c.insert_many({"_id": n, "loc": [0, 0], "pad": "x" * 300} for n in range(10_000))
    db.c.insert_one({"_id": -1, "loc": [0.0001, 0]})
    query = {"loc": {"$near": {"$geometry": point(0.00011, 0)}}}
    admin = db.client.admin
    before = admin.command("setParameter", 1, operationMemoryBytesMax=2 << 20)["was"]
    try:
        assert [document["_id"] for document in db.c.find(query, {"pad": 0}, limit=3)] == [-1, 0, 1]
        assert [document["_id"] for document in db.c.find(query, {"pad": 0}, skip=2, limit=2)] == [1, 2]
        with pytest.raises(OperationFailure) as failure:
            list(db.c.find(query))
        assert failure.value.code == 146
    finally:
        admin.command("setParameter", 1, operationMemoryBytesMax=before)


def test_the_greatest_distance_may_stand_behind_a_legacy_pair(db):
    db.c.create_index([("loc", "2d")])
    db.c.insert_many([{"_id": n, "loc": [n, 0]} for n in range(5)])

    def near(operators):
        return [d["_id"] for d in db.c.find({"loc": operators})]

    assert near({"$near": [0, 0, 2]}) == [0, 1, 2]
    assert near({"$near": {"x": 0, "y": 0, "d": 1}}) == [0, 1]
    assert near({"$near": [0, 0, 2], "$maxDistance": 3}) == [0, 1, 2, 3]
    stage = {"near": [0, 0, 1], "distanceField": "d"}
    assert [d["_id"] for d in db.c.aggregate([{"$geoNear": stage}])] == [0, 1]
    for wrong, code in (([0, 0, -1], 18522), ([0, 0, "x"], 2), ([0, 0, 1, 1], 2)):
        with pytest.raises(OperationFailure) as refused:
            near({"$near": wrong})
        assert refused.value.code == code, wrong


def test_legacy_pairs_may_have_a_type(db):
    home = {"lng": 1, "lat": 1, "type": "home"}
    for name, kind in (("scan", None), ("plane", "2d"), ("sphere", "2dsphere")):
        if kind:
            db[name].create_index([("loc", kind)])
        db[name].insert_one({"_id": 1, "loc": home})
        for operator in (
            {"$geoWithin": {"$box": [[0, 0], [2, 2]]}},
            {"$geoWithin": {"$centerSphere": [[1, 1], 0.1]}},
            {"$geoWithin": {"$geometry": square(0, 0, 2)}},
            {"$geoIntersects": {"$geometry": square(0, 0, 2)}},
        ):
            assert db[name].count_documents({"loc": operator}) == 1, (name, operator)
    near = {"$near": {"$geometry": point(1, 1), "$maxDistance": 1}}
    assert db.sphere.find_one({"loc": near})["loc"] == home


def test_polygons_with_rings_at_odds(db):
    outer, hole = square(0, 0, 10)["coordinates"][0], square(1, 1, 4)["coordinates"][0]
    at_odds = {"type": "Polygon", "coordinates": [outer, hole, square(3, 3, 4)["coordinates"][0]]}
    meets = {"loc": {"$geoIntersects": {"$geometry": point(9, 9)}}}
    # Where there is no index they are taken.
    db.c.insert_one({"_id": 1, "loc": at_odds})
    assert db.c.count_documents(meets) == 1
    # An index takes what is there; what comes new has to be right.
    db.c.create_index([("loc", "2dsphere")])
    assert db.c.count_documents(meets) == 1
    for write in (
        lambda: db.c.insert_one({"loc": at_odds}),
        lambda: db.c.update_one({"_id": 2}, {"$set": {"loc": at_odds}}, upsert=True),
        lambda: db.c.insert_one({"loc": {"type": "Polygon", "coordinates": [outer, outer]}}),
    ):
        with pytest.raises(OperationFailure) as refused:
            write()
        assert refused.value.code == 16755
    # Filters take it: a validator that is stored may have it.
    assert db.c.count_documents({"loc": {"$geoIntersects": {"$geometry": at_odds}}}) == 1
    db.c.insert_one({"_id": 3, "loc": {"type": "Polygon", "coordinates": [outer, hole]}})
    with pytest.raises(OperationFailure) as refused:
        db.c.update_one({"_id": 3}, {"$set": {"loc": at_odds}})
    assert refused.value.code == 16755
    db.c.update_one({"_id": 1}, {"$set": {"note": "x" * 20000, "loc.name": "old"}})
    assert db.command("validate", "c", full=True)["valid"]
    assert db.c.delete_one(meets | {"_id": 1}).deleted_count == 1
    assert db.command("validate", "c", full=True)["valid"]


def test_a_validator_keeps_geometries_in_a_region(db):
    db.create_collection("c", validator={"loc": {"$geoWithin": {"$geometry": square(0, 0, 10)}}})
    db.c.insert_one({"loc": point(5, 5)})
    with pytest.raises(pymongo.errors.WriteError) as refused:
        db.c.insert_one({"loc": point(15, 5)})
    details = refused.value.details["errInfo"]["details"]
    assert details["operatorName"] == "$geoWithin" and "none of the considered geometries" in details["reason"]


def test_what_may_not_be_asked(db):
    db.c.insert_one({"loc": point(1, 1)})

    def code(query):
        with pytest.raises(OperationFailure) as refused:
            list(db.c.find(query))
        return refused.value.code

    near = {"loc": {"$near": {"$geometry": point(1, 1)}}}
    assert code(near) == 291
    # Applications read which index to make.
    for query, tree in (
        ({"loc": {"$nearSphere": [1, 1], "$maxDistance": 0.5}}, "GEONEAR  field=loc maxdist=0.5 isNearSphere=1"),
        (near, "GEONEAR  field=loc maxdist=1.79769e+308 isNearSphere=0"),
    ):
        with pytest.raises(OperationFailure, match="unable to find index for .geoNear query") as refused:
            list(db.c.find(query))
        assert tree in str(refused.value)
    db.c.create_index([("loc", "2dsphere")])
    assert code({"loc": {"$near": [1, 1]}}) == 291
    assert code({"$or": [near, {"a": 1}]}) == 2
    assert code({"$and": [near, near]}) == 2
    assert code({"loc": {"$near": {"$geometry": square(0, 0, 1)}}}) == 2
    assert code({"loc": {"$near": {"$geometry": point(1, 1), "$maxDistance": -1}}}) == 2
    assert code({"loc": {"$near": {"$geometry": [1, 1]}}}) == 2
    db.create_collection("capped", capped=True, size=4096)
    db.capped.create_index([("loc", "2dsphere")])
    for cursor in (
        db.c.find(near).sort("$natural", -1),
        db.c.find(near).hint([("$natural", 1)]),
        db.capped.find(near, cursor_type=pymongo.CursorType.TAILABLE),
    ):
        with pytest.raises(OperationFailure) as refused:
            list(cursor)
        assert refused.value.code == 2
    assert code({"loc": {"$geoWithin": {"$geometry": point(1, 1)}}}) == 2
    assert code({"loc": {"$geoWithin": {"$circle": [[0, 0], 1]}}}) == 2
    assert code({"loc": {"$geoIntersects": {"$box": [[0, 0], [1, 1]]}}}) == 2
    for pipeline, wanted in (
        ([{"$match": near}], 5626500),
        ([{"$limit": 1}, {"$geoNear": {"near": point(0, 0), "distanceField": "d"}}], 40603),
        ([{"$geoNear": {"near": point(0, 0)}}], 16606),
        ([{"$geoNear": {"near": point(0, 0), "distanceField": "d", "start": 1}}], 50856),
        ([{"$geoNear": {"near": point(0, 0), "distanceField": "d", "num": 1}}], 50857),
        ([{"$geoNear": {"near": point(0, 0), "distanceField": "d", "limit": 1}}], 50858),
        # There is an index, which does not serve.
        ([{"$geoNear": {"near": [0, 0], "distanceField": "d"}}], 291),
        ([{"$facet": {"a": [{"$geoNear": {"near": point(0, 0), "distanceField": "d"}}]}}], 40600),
    ):
        with pytest.raises(OperationFailure) as refused:
            list(db.c.aggregate(pipeline))
        assert refused.value.code == wanted, pipeline
    assert db.c.count_documents({"$or": [{"loc": {"$geoWithin": {"$geometry": square(0, 0, 2)}}}, {"a": 1}]}) == 1


def test_round_polygons_find_what_a_scan_finds(db, seed):
    """Sides along meridians and the equator, which go through the middle of cells."""
    rng = random.Random(seed)
    db.c.create_index([("g", "2dsphere")])
    db.c.insert_many([{"_id": n, "g": point(rng.uniform(-180, 180), rng.uniform(-90, 90))} for n in range(1500)])
    db.c.insert_one({"_id": 5000, "g": point(117, -9)})
    shapes = [[[90, -30], [150, -30], [150, 60], [90, 60], [90, -30]], [[10, 90], [-80, -30], [80, -30], [10, 90]]]
    for _ in range(60):
        step = rng.choice([5, 15, 30, 45])
        west, south = step * rng.randrange(-3, 3), step * rng.randrange(-2, 2)
        east, north = min(west + step * rng.randint(1, 3), 180), min(south + step * rng.randint(1, 3), 90)
        shapes.append([[west, south], [east, south], [east, north], [west, north], [west, south]])
    for shape in shapes:
        polygon = {"type": "Polygon", "coordinates": [shape]}
        for operator in ("$geoWithin", "$geoIntersects"):
            query = {"g": {operator: {"$geometry": polygon}}}
            scan = sorted(d["_id"] for d in db.c.find(query, hint=[("$natural", 1)]))
            assert sorted(d["_id"] for d in db.c.find(query, hint="g_2dsphere")) == scan, query
        db.p.drop()
        db.p.create_index([("g", "2dsphere")])
        db.p.insert_one({"g": polygon})
        inside = next((d for d in db.c.find({"g": {"$geoWithin": {"$geometry": polygon}}})), None)
        if inside:
            assert db.p.count_documents({"g": {"$geoIntersects": {"$geometry": inside["g"]}}}) == 1


def test_what_changes_under_a_search(db):
    db.c.create_index([("g", "2dsphere"), ("a", 1)])
    db.c.insert_many([{"_id": n, "g": point(n / 100, 0), "a": []} for n in range(300)])
    assert db.c.count_documents({"g": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}, "a": []}) == 300
    near = {"g": {"$near": {"$geometry": point(0, 0)}}}
    changed = db.c.find_one_and_update(near, {"$set": {"seen": True}})
    assert changed["_id"] == 0
    assert db.c.find_one_and_delete(near)["_id"] == 0
    cursor = db.c.find(near, batch_size=2)
    assert [next(cursor)["_id"], next(cursor)["_id"]] == [1, 2]
    db.c.drop_index("g_2dsphere_a_1")
    with pytest.raises(OperationFailure) as killed:
        list(cursor)
    assert killed.value.code == 175


def test_hashed_indexes(db, seed):
    rng = random.Random(seed)
    values = [1, 1.0, 1.5, Int64(1 << 40), Int64((1 << 53) + 1), Decimal128("9007199254740993"), "a", "b", None, True, {"x": 1}, 2.0, -7]
    db.c.create_index([("a", "hashed")])
    db.c.create_index([("kind", 1), ("b.c", "hashed")])
    db.c.insert_many([{"_id": n, "a": rng.choice(values), "kind": n % 2, "b": {"c": n}} for n in range(200)])
    db.c.insert_one({"_id": 1000})
    for value in values:
        scan = sorted(d["_id"] for d in db.c.find({"a": value}, hint=[("$natural", 1)]))
        assert sorted(d["_id"] for d in db.c.find({"a": value})) == scan
    scan = sorted(d["_id"] for d in db.c.find({"a": {"$in": ["a", 1, None]}}, hint=[("$natural", 1)]))
    assert sorted(d["_id"] for d in db.c.find({"a": {"$in": ["a", 1, None]}}, hint="a_hashed")) == scan
    assert stages(winning(db.c.find({"a": 1}))) == ["FETCH", "IXSCAN"]
    assert stages(winning(db.c.find({"a": {"$gt": 1}}))) == ["COLLSCAN"]
    assert stages(winning(db.c.find({}).sort("a", 1))) == ["SORT", "COLLSCAN"]
    assert db.c.find_one({"kind": 1, "b.c": 7})["_id"] == 7
    assert stages(winning(db.c.find({"kind": 1, "b.c": 7}))) == ["FETCH", "IXSCAN"]
    assert db.c.count_documents({"kind": 1}) == 100
    hashed = db.c.aggregate([{"$match": {"_id": 1000}}, {"$project": {"h": {"$toHashedIndexKey": "string to hash"}}}])
    assert next(hashed)["h"] == 763543691661428748
    assert db.command("validate", "c", full=True)["valid"]
    for document in ({"a": [1]}, {"b": [{"c": 1}]}, {"kind": [1]}):
        with pytest.raises(OperationFailure) as refused:
            db.c.insert_one(document)
        assert refused.value.code == 16766, document

    def code(keys, **options):
        with pytest.raises(OperationFailure) as refused:
            db.c.create_index(keys, **options)
        return refused.value.code

    assert code([("x", "hashed")], unique=True) == 16764
    assert code([("x", "hashed"), ("y", "hashed")]) == 31303
    assert code([("x", "hashed"), ("y", "2dsphere")]) == 67
    assert code([("x", 1), ("y", "2d")]) == 16801
    assert code([("x", "2dsphere")], expireAfterSeconds=5) == 67
    assert code([("x", "2d")], bits=40) == 72
    assert code([("x", "2d")], bits=1.5) == 67
    assert code([("x", "hatched")]) == 67
    with pytest.raises(OperationFailure) as refused:
        db.command("collMod", "c", index={"name": "a_hashed", "expireAfterSeconds": 5})
    assert refused.value.code == 72
    db.c.create_index([("_id", "hashed")])
    assert db.c.find_one({"_id": 1000}, hint="_id_hashed")["_id"] == 1000
    db.c.drop_index("_id_hashed")
    assert list(db.c.index_information()) == ["_id_", "a_hashed", "kind_1_b.c_hashed"]
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        db.c.insert_one({"_id": 1000})


def test_a_partial_index_of_what_lies_in_a_region(db):
    region = {"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}}
    db.c.insert_many([{"_id": i, "n": i % 5, "loc": [i, 0]} for i in range(60)])
    db.c.create_index("n", partialFilterExpression=region)
    inside = {"n": 1, **region}
    assert sorted(each["_id"] for each in db.c.find(inside)) == [1]
    assert "IXSCAN" in str(db.c.find(inside).explain()["queryPlanner"]["winningPlan"])
    # What another region has need not be in the index.
    other = {"n": 1, "loc": {"$geoWithin": {"$centerSphere": [[0, 0], 0.2]}}}
    assert sorted(each["_id"] for each in db.c.find(other)) == [1, 6, 11]
    assert sorted(each["_id"] for each in db.c.find({"n": 1})) == list(range(1, 60, 5))
    db.c.update_one({"_id": 1}, {"$set": {"loc": [50, 0]}})
    assert list(db.c.find(inside)) == []
    assert db.command("validate", "c", full=True)["valid"]
