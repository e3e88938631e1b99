//! Paths that are written twice.

use super::*;

/// Whatever the names and their order, one that is written twice is noticed: 9 comes before 10, and "1a" behind both.
#[test]
fn conflicts_among_numbers_and_names() {
    let names = ["9", "10", "1a", "100", "2", "1", "0x"];
    for start in 0..names.len() {
        for step in [1, 2, 3, 4, 5, 6] {
            let order: Vec<&str> = (0..names.len())
                .map(|at| names[(start + at * step) % names.len()])
                .collect();
            let mut set = bson::Document::new();
            for name in &order {
                set.insert(format!("a.{name}"), 1);
            }
            for name in &order {
                let twice = doc! {"$set": set.clone(), "$inc": {format!("a.{name}"): 1}};
                let error = parse_with(&Bson::Document(twice), &[]).err();
                let code = error.and_then(|error| error.code());
                assert_eq!(
                    code,
                    Some(ErrorCode::ConflictingUpdateOperators),
                    "{name} among {order:?}"
                );
            }
        }
    }
}

#[test]
fn steps_that_select_elements_stand_beside_no_others() {
    let parsed = |first: &str, second: &str, filters: &[bson::Document]| {
        let update = bson!({"$set": {first: 1, second: 2}});
        parse_with(&update, filters)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let (i, j) = (doc! {"i": 1}, doc! {"j": 1});
    for (first, second, filters) in [
        ("a.$[].b", "a.0.b", &[][..]),
        ("a.0.b", "a.$[i].b", std::slice::from_ref(&i)),
        ("a.$.b", "a.$[].b", &[]),
        ("a.$[i].b", "a.x", std::slice::from_ref(&i)),
    ] {
        let refused = parsed(first, second, filters).unwrap_err();
        let message = format!("Updating the path '{second}' would create a conflict at 'a'");
        assert!(refused.contains(&message), "{first} {second}: {refused}");
    }
    assert_eq!(parsed("a.$[i].b", "a.$[j].c", &[i.clone(), j]), Ok(()));
    assert_eq!(parsed("a.$[].b", "a.$[i].b", &[i]), Ok(()));
}
