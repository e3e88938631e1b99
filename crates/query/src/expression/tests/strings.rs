use super::*;

#[test]
fn joining_and_folding() {
    gives(doc! {"$concat": ["a", "b", "c"]}, "abc");
    gives(doc! {"$concat": []}, "");
    gives(doc! {"$toUpper": "aé1"}, "Aé1");
    gives(doc! {"$toLower": 12.5}, "12.5");
    gives(doc! {"$toUpper": Bson::Null}, "");
    gives(doc! {"$strcasecmp": ["Abc", "aBD"]}, -1);
    gives(doc! {"$strcasecmp": ["a", Bson::Null]}, 1);
    gives(doc! {"$split": ["a-b-c", "-"]}, vec!["a", "b", "c"]);
    gives(doc! {"$split": ["abc", "-"]}, vec!["abc"]);
    gives(doc! {"$split": [Bson::Null, "-"]}, Bson::Null);
    fails(doc! {"$split": [1, "-"]}, 40085);
    fails(doc! {"$split": ["a", 1]}, 40086);
    fails(doc! {"$split": ["a", ""]}, 40087);
}

#[test]
fn parts_and_lengths() {
    gives(doc! {"$substrBytes": ["hello", 1, 3]}, "ell");
    gives(doc! {"$substr": ["hello", 1, -1]}, "ello");
    gives(doc! {"$substrBytes": ["hello", 9, 2]}, "");
    gives(doc! {"$substrCP": ["cafétéria", 3, 2]}, "ét");
    gives(doc! {"$substrCP": [Bson::Null, 0, 2]}, "");
    fails(doc! {"$substrBytes": ["é", 1, 1]}, 28656);
    fails(doc! {"$substrBytes": ["é", 0, 1]}, 28657);
    fails(doc! {"$substrBytes": ["a", "x", 1]}, 16034);
    fails(doc! {"$substrBytes": ["a", 0, "x"]}, 16035);
    fails(doc! {"$substrBytes": ["a", -1, 1]}, 50752);
    fails(doc! {"$substrCP": ["a", "x", 1]}, 34450);
    fails(doc! {"$substrCP": ["a", 0.5, 1]}, 34451);
    fails(doc! {"$substrCP": ["a", 0, "x"]}, 34452);
    fails(doc! {"$substrCP": ["a", 0, -1]}, 34454);
    fails(doc! {"$substrCP": ["a", -1, 1]}, 34455);
    // Both are looked at before the sign of one, and the length's comes first.
    fails(doc! {"$substrCP": ["a", -1, "x"]}, 34452);
    fails(doc! {"$substrCP": ["a", -1, 1.5]}, 34453);
    fails(doc! {"$substrCP": ["a", -1, -1]}, 34454);
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e20] {
        fails(doc! {"$substrBytes": ["hello", number, 3]}, 31109);
        fails(doc! {"$substr": ["hello", 0, number]}, 31109);
        fails(doc! {"$substrBytes": ["hello", number, "x"]}, 16035);
    }
    gives(doc! {"$substrBytes": ["hello", 1.9, 2.9]}, "el");
    for number in [dec("NaN"), dec("Infinity"), dec("-Infinity"), dec("1E+6144")] {
        fails(doc! {"$substrBytes": ["hello", number.clone(), 3]}, 50752);
        gives(doc! {"$substrBytes": ["hello", 1, number]}, "ello");
    }
    gives(doc! {"$strLenBytes": "é"}, 2);
    gives(doc! {"$strLenCP": "é"}, 1);
}

#[test]
fn searching() {
    gives(doc! {"$indexOfBytes": ["cafétéria", "é"]}, 3);
    gives(doc! {"$indexOfBytes": ["abcabc", "c", 3]}, 5);
    gives(doc! {"$indexOfBytes": ["abcabc", "c", 3, 5]}, -1);
    gives(doc! {"$indexOfCP": ["cafétéria", "t"]}, 4);
    gives(doc! {"$indexOfCP": ["abc", "", 2]}, 2);
    // A match that begins before the end may reach beyond it; of bytes it may not.
    gives(doc! {"$indexOfCP": ["hello", "llo", 0, 3]}, 2);
    gives(doc! {"$indexOfCP": ["hello", "llo", 0, 2]}, -1);
    gives(doc! {"$indexOfCP": ["\u{e9}h\u{e9}llo", "llo", 1, 4]}, 3);
    gives(doc! {"$indexOfBytes": ["hello", "llo", 0, 4]}, -1);
    gives(doc! {"$indexOfCP": ["abc", "z"]}, -1);
    gives(doc! {"$indexOfCP": [Bson::Null, "z"]}, Bson::Null);
    fails(doc! {"$indexOfBytes": [1, "a"]}, 40091);
    fails(doc! {"$indexOfBytes": ["a", 1]}, 40092);
    fails(doc! {"$indexOfCP": [1, "a"]}, 40093);
    fails(doc! {"$indexOfCP": ["a", "a", 1.5]}, 40096);
    fails(doc! {"$indexOfCP": ["a", "a", -1]}, 40097);
}

#[test]
fn trimming_and_replacing() {
    gives(doc! {"$trim": {"input": " \u{2003}a b\t\0"}}, "a b");
    gives(doc! {"$ltrim": {"input": "xxaxx", "chars": "x"}}, "axx");
    gives(doc! {"$rtrim": {"input": "xyaxy", "chars": "yx"}}, "xya");
    gives(doc! {"$trim": {"input": Bson::Null}}, Bson::Null);
    fails(doc! {"$trim": {"input": 1}}, 50699);
    fails(doc! {"$trim": {"input": "a", "chars": 1}}, 50700);
    fails(doc! {"$trim": {"chars": "a"}}, 50695);
    fails(doc! {"$trim": {"input": "a", "x": "a"}}, 50694);
    fails(doc! {"$trim": "a"}, 50696);
    gives(
        doc! {"$replaceOne": {"input": "aXbX", "find": "X", "replacement": "-"}},
        "a-bX",
    );
    gives(
        doc! {"$replaceAll": {"input": "aXbX", "find": "X", "replacement": "-"}},
        "a-b-",
    );
    gives(
        doc! {"$replaceAll": {"input": Bson::Null, "find": "X", "replacement": "-"}},
        Bson::Null,
    );
    fails(
        doc! {"$replaceOne": {"input": 1, "find": "X", "replacement": "-"}},
        51746,
    );
    fails(
        doc! {"$replaceOne": {"input": "a", "find": 1, "replacement": "-"}},
        51745,
    );
    fails(
        doc! {"$replaceOne": {"input": "a", "find": "a", "replacement": 1}},
        51744,
    );
}

#[test]
fn regular_expressions() {
    let find = |regex: Bson| doc! {"$regexFind": {"input": "éa1b22", "regex": regex}};
    gives(
        doc! {"$regexMatch": {"input": "Hello", "regex": "^h", "options": "i"}},
        true,
    );
    gives(doc! {"$regexMatch": {"input": "Hello", "regex": "^h"}}, false);
    gives(doc! {"$regexMatch": {"input": Bson::Null, "regex": "^h"}}, false);
    gives(
        find("([a-z])([0-9]+)".into()),
        doc! {"match": "a1", "idx": 1, "captures": ["a", "1"]},
    );
    gives(
        find("(x)?b".into()),
        doc! {"match": "b", "idx": 3, "captures": [Bson::Null]},
    );
    gives(find("zzz".into()), Bson::Null);
    gives(
        doc! {"$regexFindAll": {"input": "a1b22", "regex": "[0-9]+"}},
        vec![
            doc! {"match": "1", "idx": 1, "captures": []},
            doc! {"match": "22", "idx": 3, "captures": []},
        ],
    );
    // Empty matches go on behind each code point, and do not come at the end.
    let empty = evaluate(
        doc! {"$size": {"$regexFindAll": {"input": "éa", "regex": ""}}},
        &doc! {},
    )
    .unwrap();
    assert_eq!(empty, Some(2.into()));
    // A pattern from the document.
    gives_on(
        doc! {"$regexMatch": {"input": "$s", "regex": "$p"}},
        doc! {"s": "abc", "p": "b."},
        true,
    );
    fails_on(
        doc! {"$regexMatch": {"input": "$s", "regex": "a"}},
        doc! {"s": 1},
        51104,
    );
    fails(doc! {"$regexMatch": {"input": "a", "regex": 1}}, 51105);
    fails(doc! {"$regexMatch": {"input": "a", "regex": "a", "options": 1}}, 51106);
    fails(
        doc! {"$regexMatch": {"input": "a", "regex": "a", "options": "q"}},
        51108,
    );
    fails(doc! {"$regexMatch": {"input": "a", "regex": "("}}, 51111);
    for operator in ["$regexMatch", "$regexFind", "$regexFindAll"] {
        evaluate(doc! {operator: {"input": "a", "regex": "a".repeat(16_384)}}, &doc! {}).unwrap();
        fails(doc! {operator: {"input": "a", "regex": "a".repeat(16_385)}}, 51111);
    }
    fails(doc! {"$regexMatch": {"regex": "a"}}, 31022);
    fails(doc! {"$regexMatch": {"input": "a"}}, 31023);
    fails(doc! {"$regexMatch": "a"}, 51103);
}

#[test]
fn doubles_among_strings_have_six_digits() {
    for (number, text) in [
        (1e6, "1e+06"),
        (123_456.7, "123457"),
        (0.5, "0.5"),
        (-2.0, "-2"),
        (1e-5, "1e-05"),
        (0.000_123_456_78, "0.000123457"),
        (999_999.9, "1e+06"),
        (0.0, "0"),
        (f64::NAN, "nan"),
        (f64::NEG_INFINITY, "-inf"),
        (1.5e300, "1.5e+300"),
    ] {
        gives(doc! {"$toLower": number}, text);
        gives(doc! {"$substr": [number, 0, -1]}, text);
    }
    gives(doc! {"$toUpper": 1e6}, "1E+06");
    gives(doc! {"$toString": 1e6}, "1000000");
}

#[test]
fn timestamps_among_strings() {
    for (time, increment, text) in [
        (0, 0, "Jan  1 00:00:00:0"),
        (1_721_500_800, 1, "Jul 20 18:40:00:1"),
        (u32::MAX, u32::MAX, "Feb  7 06:28:15:4294967295"),
    ] {
        let timestamp = Bson::Timestamp(bson::Timestamp { time, increment });
        gives(doc! {"$substrBytes": [timestamp.clone(), 0, -1]}, text);
        gives(doc! {"$toLower": timestamp.clone()}, text.to_lowercase());
        fails(doc! {"$toString": timestamp}, 241);
    }
}

#[test]
fn positions_at_the_end_and_between() {
    gives(doc! {"$substrBytes": ["hello", dec("1.5"), dec("2.5")]}, "ll");
    gives(doc! {"$indexOfCP": ["hello", "", 5]}, -1);
    gives(doc! {"$indexOfCP": ["hello", "", 4]}, 4);
    gives(doc! {"$indexOfCP": ["", ""]}, 0);
    gives(doc! {"$size": {"$regexFindAll": {"input": "abc", "regex": ""}}}, 3);
    gives(doc! {"$size": {"$regexFindAll": {"input": "", "regex": ""}}}, 1);
    gives(doc! {"$size": {"$regexFindAll": {"input": "abc", "regex": "c|$"}}}, 1);
    for operator in ["$regexMatch", "$regexFind", "$regexFindAll"] {
        fails(
            doc! {operator: {"input": "a", "regex": Bson::Null, "options": 1}},
            51106,
        );
        fails(
            doc! {operator: {"input": Bson::Null, "regex": "$nothing", "options": 1}},
            51106,
        );
    }
    gives(
        doc! {"$regexMatch": {"input": "a", "regex": Bson::Null, "options": "i"}},
        false,
    );
}

/// A pattern that is no constant is kept compiled until another one, or another option, comes.
#[test]
fn patterns_that_change_within_one_evaluation() {
    let pairs = [["ab", "a"], ["ab", "a"], ["ab", "x"], ["AB", "a"], ["ab", "a"]].map(|pair| pair.to_vec());
    let item = |place: i32| doc! {"$arrayElemAt": ["$$this", place]};
    let matches = |options: Bson| {
        doc! {"$map": {"input": "$pairs", "in": {"$regexMatch": {"input": item(0), "regex": item(1), "options": options}}}}
    };
    let root = doc! {"pairs": pairs.to_vec()};
    gives_on(matches("".into()), root.clone(), vec![true, true, false, false, true]);
    let by_case = doc! {"$cond": [{"$eq": [item(0), "AB"]}, "i", ""]};
    gives_on(matches(by_case.into()), root, vec![true, true, false, true, true]);
}

/// A filter had the stack for it, `$regexMatch` failed (51156).
#[test]
fn a_match_that_goes_back_far_has_the_stack_it_needs() {
    let text = "ab".repeat(2_000) + "x";
    let regex = "(a|b)+[xy]";
    for (options, pattern) in [(None, regex), (Some("i"), "$p")] {
        let search = |operator: &str| {
            let mut argument = doc! {"input": "$t", "regex": pattern};
            argument.extend(options.map(|options| ("options".to_owned(), Bson::from(options))));
            doc! {operator: argument}
        };
        let root = || doc! {"t": text.clone(), "p": regex};
        let found = doc! {"match": text.clone(), "idx": 0, "captures": ["b"]};
        gives_on(search("$regexMatch"), root(), true);
        gives_on(search("$regexFind"), root(), found.clone());
        gives_on(search("$regexFindAll"), root(), vec![found]);
    }
}
