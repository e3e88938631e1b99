use super::*;

fn tree() -> Tree {
    Tree::new(
        TableId(1),
        Shape {
            codec: Codec::None,
            level: None,
            leaf_bytes: 100,
            large_bytes_min: 1000,
            volume: VolumeId::MAIN,
        },
        Child::Leaf(Arc::new(Leaf::empty(Box::default()))),
    )
}

fn key(number: usize) -> Vec<u8> {
    (number as u32).to_be_bytes().to_vec()
}

fn leaf(number: usize) -> Child {
    Child::Leaf(Arc::new(Leaf::empty(key(number).into())))
}

/// Levels, fences and order, all the way down; the lows of all leaves.
fn check(tree: &Tree) -> Vec<Vec<u8>> {
    fn walk(child: &Child, level: Option<u8>, low: &[u8], lows: &mut Vec<Vec<u8>>, guard: &Guard) {
        match child {
            Child::Leaf(leaf) => {
                assert!(level.is_none_or(|level| level == 0));
                assert!(&*leaf.low >= low);
                lows.push(leaf.low.to_vec());
            }
            Child::Inner(inner) => {
                assert!(level.is_none_or(|level| level == inner.level));
                assert!(inner.children.len() <= CHILDREN_MAX);
                inner.separators.check_invariants();
                for (index, cell) in inner.children.iter().enumerate() {
                    let low = if index == 0 {
                        low.to_vec()
                    } else {
                        inner.separators.get(index - 1).to_vec()
                    };
                    walk(cell.load(guard), Some(inner.level - 1), &low, lows, guard);
                }
            }
            Child::Nothing | Child::OnDisk { .. } => panic!("every child is in memory"),
        }
    }
    let guard = rcu::pin();
    let mut lows = Vec::new();
    walk(tree.root.load(&guard), None, &[], &mut lows, &guard);
    assert!(lows.is_sorted());
    lows
}

#[test]
fn splits_at_the_end_and_in_the_middle_keep_the_structure() {
    for appending in [true, false] {
        let tree = tree();
        let mut expected = vec![Vec::new()];
        let total = CHILDREN_MAX * CHILDREN_MAX + 10;
        for step in 1..total {
            let number = if appending { step } else { step * 7919 % total };
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            let at = key(number);
            let Child::Leaf(here) = tree.descend(Target::At(&at), 0, &guard).child else {
                panic!("all leaves are in memory")
            };
            let kept = Child::Leaf(here.clone());
            tree.replace_child(&at, 0, kept, vec![(at.clone(), leaf(number))], &guard);
            expected.push(at);
        }
        expected.sort();
        assert_eq!(check(&tree), expected);
        // And out again, down to the last.
        let mut left = expected.clone();
        while left.len() > 1 {
            let low = left.remove(left.len() * 5 / 7 % left.len());
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            assert!(tree.remove_child(&low, 0, &guard).is_some());
            if left.len() % 1000 == 1 {
                assert_eq!(check(&tree), left);
            }
        }
        assert!(tree.remove_child(&left[0], 0, &rcu::pin()).is_none());
    }
}

#[test]
fn no_reader_finds_a_leaf_whose_neighbour_is_being_merged_with_it() {
    const LEAVES: usize = 400;
    let tree = tree();
    let guard = rcu::pin();
    for number in 1..LEAVES {
        let at = key(number);
        let here = tree.leaf_in_memory(&at, &guard).expect("in memory");
        tree.replace_child(&at, 0, Child::Leaf(here), vec![(at.clone(), leaf(number))], &guard);
    }
    drop(guard);
    // A merged leaf is marked: a reader of a right one's key must find that leaf, or a merged one.
    const MERGED: u8 = 7;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            while !over.load(Ordering::Acquire) {
                for number in (1..LEAVES).step_by(2) {
                    let guard = rcu::pin();
                    let found = tree.leaf_in_memory(&key(number), &guard).expect("in memory");
                    let is_merged = found.warmth.load(Ordering::Relaxed) == MERGED;
                    assert!(
                        is_merged || *found.low == *key(number),
                        "leaf {:02x?} for {number}",
                        found.low
                    );
                }
            }
        };
        scope.spawn(reader);
        scope.spawn(reader);
        let mut merged = 0;
        for number in (1..LEAVES).step_by(2) {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            let Child::Leaf(made) = leaf(number - 1) else {
                unreachable!("a leaf was made")
            };
            made.warmth.store(MERGED, Ordering::Relaxed);
            let replaced = tree.merge_with_previous(&key(number), 0, Child::Leaf(made), &guard);
            if replaced.is_some() {
                merged += 1;
                let left = tree.leaf_in_memory(&key(number - 1), &guard).expect("in memory");
                let right = tree.leaf_in_memory(&key(number), &guard).expect("in memory");
                assert!(Arc::ptr_eq(&left, &right), "one leaf for both");
            }
        }
        over.store(true, Ordering::Release);
        assert!(
            merged > LEAVES / 4,
            "most neighbours are under one node: {merged} merged"
        );
    });
    let lows = check(&tree);
    assert!(lows.len() < LEAVES * 3 / 4, "{} leaves are left", lows.len());
}

#[test]
fn targets_before_a_separator_lie_to_its_left() {
    let tree = tree();
    let guard = rcu::pin();
    for number in 1..500 {
        let at = key(number * 10);
        let here = tree.leaf_in_memory(&at, &guard).expect("in memory");
        tree.replace_child(&at, 0, Child::Leaf(here), vec![(at.clone(), leaf(number * 10))], &guard);
    }
    let low = |target: Target<'_>| match tree.descend(target, 0, &guard).child {
        Child::Leaf(leaf) => leaf.low.to_vec(),
        _ => panic!("in memory"),
    };
    for number in 1..500 {
        assert_eq!(low(Target::At(&key(number * 10))), key(number * 10));
        assert_eq!(low(Target::At(&key(number * 10 + 9))), key(number * 10));
        let before = if number == 1 {
            Vec::new()
        } else {
            key((number - 1) * 10)
        };
        assert_eq!(low(Target::Before(&key(number * 10))), before);
        assert_eq!(low(Target::Before(&key(number * 10 + 1))), key(number * 10));
    }
    assert_eq!((low(Target::First), low(Target::Last)), (Vec::new(), key(4990)));
    let descent = tree.descend(Target::At(&key(55)), 0, &guard);
    assert_eq!(descent.low.map(Fence::to_vec), Some(key(50)));
    assert_eq!(descent.high.map(Fence::to_vec), Some(key(60)));
}

/// A leaf of a few hundred rows whose keys share most of their bytes becomes as many leaves at once: no node may have
/// all of their lowest keys, not even while it is parted.
#[test]
fn keys_too_long_for_one_node_part_as_many_as_they_need() {
    const KEY_BYTES: usize = 1 << 20;
    let long_key = |number: usize| {
        let mut key = vec![b'x'; KEY_BYTES];
        key.extend(self::key(number));
        key
    };
    let tree = tree();
    let count = crate::page::SEPARATOR_BYTES_MAX / KEY_BYTES + 3;
    // First the root is a leaf; then there is a node above the leaf in the middle.
    let mut expected = vec![Vec::new()];
    for (at, numbers) in [
        (Vec::new(), 1000..1000 + count),
        (long_key(1010), 1_010_000..1_010_000 + count),
    ] {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let here = tree.leaf_in_memory(&at, &guard).expect("in memory");
        let lows: Vec<Vec<u8>> = match numbers.start {
            1000 => numbers.map(long_key).collect(),
            _ => numbers
                .map(|number| [long_key(1010), self::key(number)].concat())
                .collect(),
        };
        let more = lows.iter().map(|low| {
            let leaf = Leaf::empty(low.clone().into());
            (low.clone(), Child::Leaf(Arc::new(leaf)))
        });
        let replaced = tree.replace_child(&at, 0, Child::Leaf(here), more.collect(), &guard);
        assert!(replaced.memory > 0);
        expected.extend(lows);
        expected.sort();
        assert!(check(&tree) == expected, "the leaves are there in their order");
    }
    let guard = rcu::pin();
    for low in &expected {
        let found = tree.leaf_in_memory(low, &guard).expect("in memory");
        assert!(*found.low == **low, "each is found by its lowest key");
    }
}
