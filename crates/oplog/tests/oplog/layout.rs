//! The format as a text: a change of any size, offset, tag or limit shows up as a changed file in review.

#[test]
fn the_layout_is_the_checked_in_one() {
    let expected = include_str!("../layout.snapshot");
    let found = oplog::layout_description();
    assert_eq!(
        found, expected,
        "the format has changed: raise its version, update docs/formats/log.md and this file"
    );
}
