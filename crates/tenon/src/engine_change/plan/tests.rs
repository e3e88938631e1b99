#![allow(clippy::unwrap_used)]
use super::{Engine, Kept, Next, Seen, State, Step, View, Wish, next, whole};

fn member(number: usize, state: State) -> Seen {
    Seen {
        host: format!("h{number}:1"),
        is_arbiter: false,
        votes: true,
        priority: 1.0,
        hidden: false,
        kept: None,
        state,
        delay: 0,
        behind: 0,
        engine: Engine::Named("btree".to_owned()),
        instance: Some(format!("{number:02x}")),
        has_vote: true,
    }
}

fn three() -> View {
    View {
        members: vec![
            member(0, State::Secondary),
            member(1, State::Primary),
            member(2, State::Secondary),
        ],
    }
}

fn wish(members: &[&str]) -> Wish {
    Wish {
        engine: "inMemory".to_owned(),
        members: members.iter().map(|&host| host.to_owned()).collect(),
        lag_max: 10,
    }
}

fn refusal(view: &View, wish: &Wish) -> String {
    match next(view, wish) {
        Next::Refuse(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn secondaries_come_first_and_the_primary_after_its_step_down() {
    let (steps, refused) = whole(&three(), &wish(&[]));
    assert_eq!(refused, None);
    let steps: Vec<Step> = steps.into_iter().map(|(step, _)| step).collect();
    assert_eq!(
        steps,
        [
            Step::Hide(2),
            Step::Replace(2),
            Step::Restore(2),
            Step::Hide(0),
            Step::Replace(0),
            Step::Restore(0),
            Step::HandOver(1),
            Step::Hide(1),
            Step::Replace(1),
            Step::Restore(1),
        ]
    );
}

#[test]
fn members_that_have_the_engine_or_were_not_chosen_are_left_alone() {
    let mut view = three();
    view.members[2].engine = Engine::Named("inMemory".to_owned());
    let (steps, _) = whole(&view, &wish(&["h0:1", "h2:1"]));
    let steps: Vec<Step> = steps.into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, [Step::Hide(0), Step::Replace(0), Step::Restore(0)]);
    assert_eq!(next(&view, &wish(&["h2:1"])), Next::Done);
    assert!(refusal(&view, &wish(&["h9:1"])).contains("h9:1 is no member"));
}

/// From every point at which a run may be killed, the same end is reached by the steps that are left.
#[test]
fn any_point_is_one_to_go_on_from() {
    let wish = wish(&[]);
    let (all, _) = whole(&three(), &wish);
    let mut view = three();
    for done in 0..all.len() {
        let (left, refused) = whole(&view, &wish);
        assert_eq!((left.as_slice(), refused), (&all[done..], None));
        super::happen(&mut view, &wish, all[done].0);
    }
    assert_eq!(next(&view, &wish), Next::Done);
    for (seen, before) in view.members.iter().zip(three().members) {
        assert_eq!((seen.priority, seen.hidden), (before.priority, before.hidden));
        assert_eq!(seen.engine, Engine::Named("inMemory".to_owned()));
    }
}

#[test]
fn a_member_comes_back_only_when_it_is_another_instance_with_all_data_and_its_vote() {
    let mut view = three();
    let wish = wish(&[]);
    super::happen(&mut view, &wish, Step::Hide(2));
    view.members[2].engine = Engine::Silent;
    assert_eq!(next(&view, &wish), Next::Do(Step::Replace(2)));
    let waits = |view: &View| match next(view, &wish) {
        Next::AwaitCopy(2, what) => what,
        other => panic!("{other:?}"),
    };
    // A server without users cannot tell its engine: it is the wiped one, and is not wiped again.
    view.members[2].engine = Engine::Unsaid("Authentication failed".to_owned());
    assert!(waits(&view).contains("new instance"));
    view.members[2].engine = Engine::Named("inMemory".to_owned());
    assert!(waits(&view).contains("new instance"));
    view.members[2].instance = Some("ff".to_owned());
    view.members[2].state = State::Other("STARTUP2".to_owned());
    assert_eq!(waits(&view), "it is STARTUP2");
    view.members[2].state = State::Secondary;
    view.members[2].has_vote = false;
    assert_eq!(waits(&view), "it has no vote yet");
    view.members[2].has_vote = true;
    view.members[2].behind = 11;
    assert_eq!(waits(&view), "it is 11 s behind");
    view.members[2].behind = 0;
    assert_eq!(next(&view, &wish), Next::Do(Step::Restore(2)));
}

#[test]
fn nothing_is_stopped_while_another_member_is_not_well() {
    let wish = wish(&[]);
    type Spoil = fn(&mut Seen);
    let unwell: [(&str, Spoil); 3] = [
        ("is DOWN", |seen| seen.state = State::Other("DOWN".to_owned())),
        ("has no vote yet", |seen| seen.has_vote = false),
        ("is 99 s behind", |seen| seen.behind = 99),
    ];
    for (what, spoil) in unwell {
        for is_hidden in [false, true] {
            let mut view = three();
            if is_hidden {
                super::happen(&mut view, &wish, Step::Hide(2));
            }
            spoil(&mut view.members[0]);
            match next(&view, &wish) {
                Next::AwaitHealth(reason) => assert!(reason.contains(what), "{reason}"),
                other => panic!("{what}: {other:?}"),
            }
        }
    }
    let mut view = three();
    view.members[1].state = State::Secondary;
    assert_eq!(next(&view, &wish), Next::AwaitHealth("there is no primary".to_owned()));
}

#[test]
fn a_majority_must_be_left() {
    let mut view = three();
    view.members.remove(2);
    assert!(refusal(&view, &wish(&[])).contains("1 of 2 votes"));
    // Without a vote the secondary can go; the primary cannot step down to it then.
    (
        view.members[0].votes,
        view.members[0].has_vote,
        view.members[0].priority,
    ) = (false, false, 0.0);
    let (steps, refused) = whole(&view, &wish(&["h0:1"]));
    assert_eq!((steps.len(), refused), (3, None));
    view.members[0].engine = Engine::Named("inMemory".to_owned());
    assert!(refusal(&view, &wish(&[])).contains("0 of 1 votes"));
    view.members.remove(0);
    assert!(refusal(&view, &wish(&[])).contains("only member with data"));
    // Nobody else may lead.
    let mut view = three();
    view.members
        .iter_mut()
        .for_each(|seen| seen.priority = f64::from(u8::from(seen.state == State::Primary)));
    assert!(refusal(&view, &wish(&["h1:1"])).contains("no other member can become it"));
}

#[test]
fn an_arbiter_keeps_its_vote_and_nothing_else() {
    let mut view = three();
    let arbiter = &mut view.members[2];
    (arbiter.is_arbiter, arbiter.state, arbiter.engine) = (true, State::Arbiter, Engine::Silent);
    let (steps, refused) = whole(&view, &wish(&[]));
    assert_eq!((steps.len(), refused), (7, None));
    assert!(refusal(&view, &wish(&["h2:1"])).contains("an arbiter"));
}

#[test]
fn a_change_to_another_engine_is_ended_first() {
    let mut view = three();
    super::happen(&mut view, &wish(&[]), Step::Hide(0));
    let mut other = wish(&[]);
    other.engine = "rocksdb".to_owned();
    assert!(refusal(&view, &other).contains("--to-engine inMemory"));
}

#[test]
fn what_a_member_was_is_read_back() {
    let kept = Kept {
        priority: 2.5,
        hidden: true,
        to: "inMemory".to_owned(),
        instance: "00ff".to_owned(),
    };
    assert_eq!(Kept::parse(&kept.to_text()), Some(kept));
    for text in [
        "",
        "to=x",
        "to=x priority=y hidden=true instance=1",
        "priority=1 hidden=true",
    ] {
        assert_eq!(Kept::parse(text), None, "{text}");
    }
}
