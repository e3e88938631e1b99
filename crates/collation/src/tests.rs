//! What documents mean, how strings compare, and that sort keys agree.
#![allow(clippy::unwrap_used)]

use super::*;
use bson::{Bson, Document, doc};
use keys::Collator as _;
use proptest::prelude::*;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn of(document: Document) -> Collation {
    let parsed = Collation::parse(&raw(&document)).unwrap_or_else(|error| panic!("{document}: {error}"));
    parsed.unwrap_or_else(|| panic!("{document} is simple"))
}

fn sorted<'t>(collation: &Collation, texts: &[&'t str]) -> Vec<&'t str> {
    let mut texts = texts.to_vec();
    texts.sort_by(|a, b| collation.compare(a, b));
    texts
}

#[test]
fn a_document_is_made_whole() {
    let whole = |document| Document::try_from(of(document).document()).unwrap();
    let english = doc! {
        "locale": "en", "caseLevel": false, "caseFirst": "off", "strength": 3, "numericOrdering": false,
        "alternate": "non-ignorable", "maxVariable": "punct", "normalization": false, "backwards": false, "version": "57.1",
    };
    assert_eq!(whole(doc! { "locale": "en" }), english);
    assert_eq!(whole(english.clone()), english, "and stays as it is");
    let nulls = doc! { "locale": "en", "strength": Bson::Null, "caseFirst": Bson::Null, "normalization": Bson::Null };
    assert_eq!(whole(nulls), english);
    let half: bson::Decimal128 = "2.5".parse().unwrap();
    for (given, strength) in [(Bson::Double(2.9), 2), (half.into(), 2)] {
        let asked = whole(doc! { "locale": "en", "strength": given });
        assert_eq!(asked.get_i32("strength").ok(), Some(strength));
    }
    let asked = whole(doc! { "locale": "fr_CA", "strength": 2.0, "numericOrdering": true, "version": "57.1" });
    assert_eq!(asked.get_i32("strength").ok(), Some(2));
    assert_eq!(asked.get_bool("backwards").ok(), Some(true));
    assert_eq!(asked.get_bool("numericOrdering").ok(), Some(true));
    assert_eq!(whole(doc! { "locale": "da" }).get_str("caseFirst").ok(), Some("upper"));
    assert!(Collation::parse(&raw(&doc! { "locale": "simple" })).unwrap().is_none());
}

#[test]
fn what_describes_no_collation_is_refused() {
    for (document, fault) in [
        (doc! {}, Fault::NoLocale),
        (doc! { "strength": 2 }, Fault::NoLocale),
        (doc! { "locale": 5 }, Fault::Type),
        (doc! { "locale": "xx" }, Fault::Value),
        (doc! { "locale": "en-US" }, Fault::Value),
        (doc! { "locale": "en", "version": "60.1" }, Fault::Version),
        (doc! { "locale": "en", "strength": 6 }, Fault::Value),
        (doc! { "locale": "en", "strength": 0 }, Fault::Value),
        (doc! { "locale": "en", "strength": "1" }, Fault::Type),
        (doc! { "locale": "en", "caseFirst": "none" }, Fault::Value),
        (
            doc! { "locale": "en", "caseFirst": "upper", "strength": 1 },
            Fault::Value,
        ),
        // Upper case comes first in these, asked for or not.
        (doc! { "locale": "da", "strength": 1 }, Fault::Value),
        (doc! { "locale": "mt", "strength": 2 }, Fault::Value),
        (doc! { "locale": "en", "alternate": 1 }, Fault::Type),
        (doc! { "locale": "en", "maxVariable": "symbol" }, Fault::Value),
        (doc! { "locale": "en", "caseLevel": "yes" }, Fault::Type),
        (doc! { "locale": "en", "caseLevel": 1 }, Fault::Type),
        (doc! { "locale": "en", "backwards": Bson::Null }, Fault::Type),
        (doc! { "locale": "en", "other": 1 }, Fault::UnknownField),
        (doc! { "locale": "simple", "strength": 1 }, Fault::OptionsOfSimple),
        (doc! { "locale": "sv", "backwards": true }, Fault::NotBuilt),
        (
            doc! { "locale": "de@collation=phonebook", "backwards": true },
            Fault::NotBuilt,
        ),
        (doc! { "locale": "ko@collation=search" }, Fault::NotBuilt),
    ] {
        let error = Collation::parse(&raw(&document))
            .err()
            .unwrap_or_else(|| panic!("{document}"));
        assert_eq!(error.fault, fault, "{document}: {error}");
    }
}

#[test]
fn languages_and_options_order_strings() {
    let english = of(doc! { "locale": "en" });
    assert_eq!(
        sorted(&english, &["b", "A", "a", "B", "á", "-"]),
        ["-", "a", "A", "á", "b", "B"]
    );
    let by_strength = |strength: i32| of(doc! { "locale": "en", "strength": strength });
    assert!(by_strength(1).compare("café", "CAFE").is_eq());
    assert!(by_strength(2).compare("cafe", "CAFE").is_eq() && by_strength(2).compare("café", "cafe").is_gt());
    assert!(by_strength(3).compare("cafe", "CAFE").is_lt());
    let case = of(doc! { "locale": "en", "strength": 1, "caseLevel": true });
    assert!(case.compare("cafe", "CAFE").is_lt() && case.compare("café", "cafe").is_eq());
    let upper = of(doc! { "locale": "en", "caseFirst": "upper" });
    assert_eq!(sorted(&upper, &["a", "A"]), ["A", "a"]);
    let numbers = of(doc! { "locale": "en", "numericOrdering": true });
    assert_eq!(sorted(&numbers, &["a10", "a9", "a100"]), ["a9", "a10", "a100"]);
    let shifted = of(doc! { "locale": "en", "alternate": "shifted" });
    assert!(shifted.compare("a b", "a-b").is_eq() && shifted.compare("ab", "a b").is_eq());
    let spaces = of(doc! { "locale": "en", "alternate": "shifted", "maxVariable": "space" });
    assert!(spaces.compare("a b", "ab").is_eq() && spaces.compare("a-b", "ab").is_ne());
    let swedish = of(doc! { "locale": "sv" });
    assert_eq!(sorted(&swedish, &["ö", "z", "å", "o"]), ["o", "z", "å", "ö"]);
    let phonebook = of(doc! { "locale": "de@collation=phonebook" });
    assert_eq!(sorted(&phonebook, &["af", "ä", "ad"]), ["ad", "ä", "af"]);
    let canadian = of(doc! { "locale": "fr_CA" });
    assert_eq!(sorted(&canadian, &["coté", "côte"]), ["côte", "coté"]);
    assert_eq!(
        sorted(&of(doc! { "locale": "fr" }), &["coté", "côte"]),
        ["coté", "côte"]
    );
}

#[test]
fn accents_count_from_behind_where_that_is_asked() {
    let words = ["cote", "coté", "côte", "côté"];
    for (locale, backwards, expected) in [
        ("fr", true, ["cote", "côte", "coté", "côté"]),
        ("en_US", true, ["cote", "côte", "coté", "côté"]),
        ("fr_CA", true, ["cote", "côte", "coté", "côté"]),
        ("fr_CA", false, words),
        ("fr", false, words),
    ] {
        let collation = of(doc! { "locale": locale, "backwards": backwards });
        assert_eq!(sorted(&collation, &words), expected, "{locale}");
        assert_eq!(collation.document().get_bool("backwards").ok(), Some(backwards));
        assert_eq!(collation.document().get_str("locale").ok(), Some(locale));
    }
    let all = of(doc! { "locale": "it", "backwards": true, "strength": 1, "numericOrdering": true });
    assert!(all.compare("é9", "E10").is_lt() && all.compare("é", "E").is_eq());
}

#[test]
fn languages_that_are_taken_for_the_root_order_as_it_does() {
    let key = |collator: &icu_collator::CollatorBorrowed<'_>, text: &str| {
        let mut key = Vec::new();
        let Ok(()) = collator.write_sort_key_to(text, &mut key);
        key
    };
    let by = |locale: &str, strength: Strength| {
        let preferences = CollatorPreferences::from(&Locale::try_from_str(locale).unwrap());
        let mut options = CollatorOptions::default();
        options.strength = Some(strength);
        Collator::try_new(preferences, options).unwrap()
    };
    let letters = ('\0'..='\u{ffff}').chain('\u{1f000}'..='\u{1ffff}').map(String::from);
    let clusters = [
        "ch", "dz", "ij", "ll", "lj", "ng", "sch", "ss", "aa", "ae", "oe", "gh", "ny", "sh",
    ];
    let texts: Vec<String> = letters.chain(clusters.map(str::to_owned)).collect();
    let agree = |locale: &str, strength: Strength| {
        let (language, root) = (by(locale, strength), by("und", strength));
        for text in &texts {
            assert_eq!(key(&language, text), key(&root, text), "{locale}: {text:?}");
        }
    };
    locales::with_root_order().for_each(|locale| agree(locale, Strength::Tertiary));
    // Its accents are those of the root from behind.
    agree(BACKWARDS, Strength::Primary);
}

#[test]
fn every_language_has_data() {
    for locale in [
        "zh",
        "ja",
        "ko",
        "th",
        "ar",
        "he",
        "hi",
        "ru",
        "vi",
        "tr",
        "zh@collation=stroke",
        "si@collation=dictionary",
    ] {
        assert!(of(doc! { "locale": locale }).compare("a", "b").is_lt(), "{locale}");
    }
}

/// Strings that are cut, or compared by their keys, have the order that the others have.
#[test]
fn long_strings_keep_the_order_of_their_ends() {
    let key = |collation: &Collation, text: &str| {
        let mut key = Vec::new();
        collation.append_sort_key(text, &mut key);
        key
    };
    for locale in ["en", "da", "ja", "th"] {
        let collation = of(doc! { "locale": locale, "numericOrdering": true });
        for part in ["\u{f71}\u{f72}", "a\u{301}", "aa", "7", "か", "some words "] {
            let texts = ["a", "b", "á", "9"].map(|end| format!("x{}{end}", part.repeat(1500)));
            for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
                let by_keys = key(&collation, a).cmp(&key(&collation, b));
                assert_eq!(collation.compare(a, b), by_keys, "{locale} {part:?}");
                assert_eq!(by_keys.is_eq(), a == b, "{locale} {part:?}");
            }
        }
    }
}

proptest! {
    /// The invariant of `keys::Collator`: sort keys compare as the strings do.
    #[test]
    fn sort_keys_agree(a in "\\PC{0,12}|[a-cA-C0-9á -]{0,8}", b in "\\PC{0,12}|[a-cA-C0-9á -]{0,8}", strength in 1..6_i32, which in 0..4_usize, flags in 0..8_u8) {
        let locale = ["en", "sv", "fr_CA", "ja"][which];
        let collation = of(doc! {
            "locale": locale, "strength": strength, "numericOrdering": flags & 1 != 0,
            "alternate": if flags & 2 != 0 { "shifted" } else { "non-ignorable" }, "caseLevel": flags & 4 != 0,
        });
        let key = |text: &str| {
            let mut key = Vec::new();
            collation.append_sort_key(text, &mut key);
            key
        };
        prop_assert_eq!(collation.compare(&a, &b), key(&a).cmp(&key(&b)), "{:?} {:?} {:?}", collation, a, b);
    }
}
