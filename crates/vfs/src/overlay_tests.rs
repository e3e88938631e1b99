//! What is done over a file system looks as if it were done, and is not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "the real files beside it")]

use super::OverlayFs;
use crate::{Access, FileSystem, RealFs};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn names(fs: &dyn FileSystem, path: &Path) -> Vec<String> {
    let names = fs.list(path).unwrap();
    names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Every file below a directory, with its bytes.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.clone(), Vec::new()));
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn read(fs: &dyn FileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open(path, Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn changes_are_seen_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("d/e")).unwrap();
    let long: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
    fs::write(root.join("a"), &long).unwrap();
    fs::write(root.join("d/b"), b"b").unwrap();
    fs::write(root.join("d/e/c"), b"c").unwrap();
    let before = contents(root);
    let over = OverlayFs::new(Arc::new(RealFs::new()));

    let a = over.open(&root.join("a"), Access::ReadWrite).unwrap();
    a.write_all_at(b"xyz", 4095).unwrap();
    let mut expected = long.clone();
    expected[4095..4098].copy_from_slice(b"xyz");
    assert_eq!(read(&over, &root.join("a")), expected);
    a.set_len(4097).unwrap();
    a.set_len(9000).unwrap();
    expected.truncate(4097);
    expected.resize(9000, 0);
    assert_eq!(read(&over, &root.join("a")), expected);
    a.write_all_at(b"end", 20_000).unwrap();
    assert_eq!(a.len().unwrap(), 20_003);
    assert_eq!(a.read_at(&mut [0; 10], 20_003).unwrap(), 0);

    over.rename(&root.join("d"), &root.join("moved")).unwrap();
    assert_eq!(names(&over, root), ["a", "moved"]);
    assert_eq!(names(&over, &root.join("moved")), ["b", "e"]);
    assert_eq!(read(&over, &root.join("moved/e/c")), b"c");
    assert!(!over.exists(&root.join("d/b")).unwrap());
    assert_eq!(over.list(&root.join("d")).unwrap_err().kind(), ErrorKind::NotFound);

    over.create_directory_all(&root.join("d/new")).unwrap();
    assert_eq!(names(&over, &root.join("d")), ["new"]);
    over.open(&root.join("d/b"), Access::CreateNew).unwrap();
    assert_eq!(read(&over, &root.join("d/b")), b"");
    let refused = over.open(&root.join("d/b"), Access::CreateNew).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    over.rename(&root.join("d/b"), &root.join("d/c")).unwrap();
    assert_eq!(names(&over, &root.join("d")), ["c", "new"]);
    over.remove_file(&root.join("moved/b")).unwrap();
    assert_eq!(names(&over, &root.join("moved")), ["e"]);
    over.remove_directory_all(&root.join("moved")).unwrap();
    assert_eq!(names(&over, root), ["a", "d"]);
    assert!(!over.exists(&root.join("moved/e/c")).unwrap());
    over.lock(&root.join("lock")).unwrap().write_content(b"1").unwrap();
    assert_eq!(read(&over, &root.join("lock")), b"1");

    assert_eq!(contents(root), before);
}
