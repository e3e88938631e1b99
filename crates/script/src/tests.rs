//! Values there and back, hostile scripts, limits.

use super::*;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc, rawdoc};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const HEAP_BYTES: usize = 32 << 20;

fn scope() -> Scope {
    Scope::new(HEAP_BYTES, Arc::new(|| false)).expect("a scope")
}

/// A scope that is told to end when it has been asked so often.
fn ending_scope(asked_max: u32) -> Scope {
    let asked = AtomicU32::new(0);
    let is_interrupted = move || asked.fetch_add(1, Ordering::Relaxed) >= asked_max;
    Scope::new(HEAP_BYTES, Arc::new(is_interrupted)).expect("a scope")
}

fn function(source: &str) -> Function {
    Function::new(source, None)
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a document")
}

fn call(scope: &Scope, source: &str, arguments: Document) -> Result<Bson, ScriptError> {
    let result = scope.call(&function(source), Receiver::Empty, &raw(&arguments))?;
    let mut result = Document::try_from(&*result).expect("a document");
    Ok(result.remove("").expect("a value"))
}

fn evaluated(source: &str) -> Result<Bson, ScriptError> {
    call(&scope(), source, doc! {})
}

fn regex(pattern: &str, options: &str) -> bson::Regex {
    let text = |text: &str| text.try_into().expect("no zero bytes");
    bson::Regex {
        pattern: text(pattern),
        options: text(options),
    }
}

/// What comes back of a value: int32 by itself is a double then, and a symbol a string.
fn expected(value: Bson) -> Bson {
    match value {
        Bson::Int32(number) => Bson::Double(f64::from(number)),
        part => expected_part(part),
    }
}

fn expected_part(value: Bson) -> Bson {
    match value {
        Bson::Symbol(text) => Bson::String(text),
        Bson::Array(items) => Bson::Array(items.into_iter().map(expected_part).collect()),
        Bson::Document(fields) => Bson::Document(in_order(fields)),
        Bson::JavaScriptCodeWithScope(mut code) => {
            code.scope = in_order(code.scope);
            Bson::JavaScriptCodeWithScope(code)
        }
        Bson::RegularExpression(regex) => {
            let mut options: Vec<char> = regex.options.as_str().chars().collect();
            options.sort_unstable();
            Bson::RegularExpression(self::regex(
                regex.pattern.as_str(),
                &options.into_iter().collect::<String>(),
            ))
        }
        other => other,
    }
}

/// Fields whose names are indexes come first, by number, in JavaScript's objects.
fn in_order(fields: Document) -> Document {
    let index = |name: &str| {
        let number: u32 = name.parse().ok()?;
        (number < u32::MAX && number.to_string() == name).then_some(number)
    };
    let mut fields: Vec<(String, Bson)> = fields
        .into_iter()
        .map(|(name, value)| (name, expected_part(value)))
        .collect();
    fields.sort_by_key(|(name, _)| index(name).map_or((1, 0), |number| (0, number)));
    fields.into_iter().collect()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{0,3}", "\\PC{0,5}"]
}

fn leaf() -> impl Strategy<Value = Bson> {
    // The times that JavaScript's dates have.
    const DATE_MS_MAX: i64 = 8_640_000_000_000_000;
    prop_oneof![
        any::<f64>()
            .prop_filter("NaN is no value of its own", |n| !n.is_nan())
            .prop_map(Bson::Double),
        text().prop_map(Bson::String),
        text().prop_map(Bson::Symbol),
        any::<bool>().prop_map(Bson::Boolean),
        Just(Bson::Null),
        Just(Bson::Undefined),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<i64>().prop_map(|n| Bson::Decimal128(n.to_string().parse().expect("a number"))),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(bytes.into())),
        (-DATE_MS_MAX..=DATE_MS_MAX).prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms))),
        (any::<u32>(), any::<u32>()).prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        (any::<u8>(), any::<Vec<u8>>()).prop_map(|(subtype, bytes)| {
            let subtype = subtype.into();
            Bson::Binary(bson::Binary { subtype, bytes })
        }),
        (text(), "[imsux]{0,3}").prop_map(|(pattern, options)| {
            let pattern = pattern.replace('\0', "");
            Bson::RegularExpression(regex(&pattern, &options))
        }),
        text().prop_map(Bson::JavaScriptCode),
    ]
}

fn fields(value: impl Strategy<Value = Bson>) -> impl Strategy<Value = Document> {
    let name = prop_oneof![text(), Just("__proto__".to_owned()), Just("constructor".to_owned())];
    let name = name.prop_map(|name| name.replace('\0', ""));
    prop::collection::vec((name, value), 0..5).prop_map(|fields| fields.into_iter().collect())
}

fn value() -> impl Strategy<Value = Bson> {
    leaf().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(Bson::Document),
            prop::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
            (text(), fields(inner)).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn values_come_back_as_they_went(value in value()) {
        let scope = scope();
        let back = call(&scope, "function(value) { return value }", doc! { "0": value.clone() });
        let wanted = expected(value);
        prop_assert_eq!(format!("{:?}", back), format!("{:?}", Ok::<Bson, ScriptError>(wanted)));
    }
}

/// Reading recursed with frames of many kilobytes, and a connection's thread ended the server at 145 levels.
#[test]
fn documents_as_deep_as_bson_are_read_on_a_small_stack() {
    let read = || {
        let deep = |wrap: fn(Bson) -> Bson| (0..200).fold(Bson::Int32(1), |inner, _| wrap(inner));
        let arguments = doc! {
            "0": deep(|inner| doc! {"a": inner, "b": 1}.into()),
            "1": deep(|inner| vec![1.into(), inner].into()),
        };
        let source = "function(a, b) { let n = 0; for (; a.a; b = b[1]) { a = a.a; n += a.b || 0 } return [n, b] }";
        call(&scope(), source, arguments)
    };
    let reading = std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(read)
        .expect("a thread");
    let read = reading.join().expect("no panic").expect("a value");
    assert_eq!(read, Bson::Array(vec![199.0.into(), 1.0.into()]));
}

/// Calls itself until it is stopped, and says how often that was; there is more stack than scripts may use.
fn recursion(scope: &Scope) -> Result<Bson, ScriptError> {
    let source = "function() { let n = 0; function f() { n++; return f() + 1 } try { f() } catch (e) { return n } }";
    call(scope, source, doc! {})
}

/// The bound was where the scope had been made, in another piece of stack: scripts ran over the end of theirs, which
/// ended the server, or could not run at all.
#[test]
fn scripts_may_use_as_much_of_the_stack_wherever_they_run() {
    let depth = |result: Result<Bson, ScriptError>| match result {
        Ok(Bson::Double(depth)) => depth as i64,
        other => panic!("{other:?}"),
    };
    /// Works deeper on the stack.
    fn below<T>(bytes: usize, work: &mut dyn FnMut() -> T) -> T {
        let kept = std::hint::black_box([1_u8; 4096]);
        let done = match bytes.checked_sub(kept.len()) {
            Some(bytes) => below(bytes, work),
            None => work(),
        };
        std::hint::black_box(&kept);
        done
    }
    let in_thread = std::thread::Builder::new().stack_size(64 << 20).spawn(move || {
        let scope = scope();
        let at_first = depth(recursion(&scope));
        assert!(at_first > 100, "{at_first}");
        for bytes in [1 << 10, 600 << 10, 2 << 20] {
            let deeper = below(bytes, &mut || depth(recursion(&scope)));
            assert!(
                (deeper - at_first).abs() <= at_first / 10,
                "{deeper} instead of {at_first}"
            );
        }
        // Made deeper than it is used: in reach, or refused.
        let near = below(4 << 10, &mut crate::tests::scope);
        let higher = depth(recursion(&near));
        assert!(
            (higher - at_first).abs() <= at_first / 10,
            "{higher} instead of {at_first}"
        );
        let far = below(2 << 20, &mut crate::tests::scope);
        assert!(!far.is_within_reach());
        assert_eq!(recursion(&far), Err(ScriptError::OutOfReach));
        assert!(below(2 << 20, &mut || far.is_within_reach()));
    });
    in_thread.expect("a thread").join().expect("no panic");
}

#[test]
fn helpers_give_what_they_say() {
    for (source, wanted) in [
        ("Array.sum([1, 2, 3.5])", Bson::Double(6.5)),
        ("hex_md5('hello')", "5d41402abc4b2a76b9719d911017c592".into()),
        (
            "tojson({a: 1, b: [1, 'x'], c: null})",
            r#"{ "a" : 1, "b" : [ 1, "x" ], "c" : null }"#.into(),
        ),
        ("tojson(NumberLong(5))", "NumberLong(5)".into()),
        (
            "tojson(ISODate('2024-02-29T12:30:00.5Z'))",
            r#"ISODate("2024-02-29T12:30:00.500Z")"#.into(),
        ),
        (
            "ISODate('2024-01-01T00:00:00+01:00').getTime()",
            Bson::Double(1_704_063_600_000.0),
        ),
        (
            "NumberLong('9223372036854775807').toString()",
            r#"NumberLong("9223372036854775807")"#.into(),
        ),
        ("NumberLong(5) + 1", Bson::Double(6.0)),
        ("NumberLong(7).toNumber()", Bson::Double(7.0)),
        ("NumberInt(3.9)", Bson::Int32(3)),
        ("NumberDecimal('1.50').toString()", r#"NumberDecimal("1.50")"#.into()),
        (
            "isNumber(1) && !isNumber('1') && isString('') && isObject({})",
            true.into(),
        ),
        (
            "UUID('00112233-4455-6677-8899-aabbccddeeff').toString()",
            r#"UUID("00112233-4455-6677-8899-aabbccddeeff")"#.into(),
        ),
        ("HexData(0, 'ff00').base64()", "/wA=".into()),
        ("BinData(0, '/wA=').hex() + BinData(0, '/wA=').length()", "ff002".into()),
        (
            "ObjectId('507f191e810c19729de860ea').getTimestamp().getTime()",
            Bson::Double(1_350_506_782_000.0),
        ),
        (
            "'' + ObjectId('507f191e810c19729de860ea').toString()",
            r#"ObjectId("507f191e810c19729de860ea")"#.into(),
        ),
        (
            "Timestamp(5, 6)",
            Bson::Timestamp(bson::Timestamp { time: 5, increment: 6 }),
        ),
        ("MinKey", Bson::MinKey),
        ("MaxKey", Bson::MaxKey),
        ("[1, 2, 3].concat([4]).indexOf(4)", Bson::Double(3.0)),
        (
            "(function() { return [].slice.call(arguments, 1) })(1, 2)",
            Bson::Array(vec![Bson::Double(2.0)]),
        ),
        (
            "Array.from({length: 2}, (x, i) => i)",
            Bson::Array(vec![Bson::Double(0.0), Bson::Double(1.0)]),
        ),
    ] {
        assert_eq!(evaluated(source), Ok(wanted), "{source}");
    }
}

#[test]
fn statements_give_what_the_last_one_does() {
    for (source, value) in [
        ("sleep(1); true", Bson::Boolean(true)),
        ("var a = [1, 2]; a.length == 2;", Bson::Boolean(true)),
        ("var a = ';'\na == ';'", Bson::Boolean(true)),
        ("var f = function(n) { return n > 1; }; f(2)", Bson::Boolean(true)),
        ("if (true) return 'a;b'; 'c'", Bson::String("a;b".to_owned())),
        ("'a' // b; false", Bson::String("a".to_owned())),
        ("var a = 1; if (a) { a }", Bson::Undefined),
        ("var a = 1; // b; a", Bson::Undefined),
    ] {
        assert_eq!(evaluated(source).unwrap(), value, "{source}");
    }
}

#[test]
fn a_condition_is_as_true_as_javascript_has_it() {
    let scope = scope();
    let document = rawdoc! { "a": 6, "s": "" };
    for (source, wanted) in [
        ("this.a > 5", true),
        ("obj.a > 6", false),
        ("return this.a", true),
        ("function() { return this.s }", false),
        ("() => obj.a == 6", true),
        ("this.nothing", false),
        ("({})", true),
    ] {
        assert_eq!(scope.test(&function(source), &document), Ok(wanted), "{source}");
    }
}

#[test]
fn what_is_emitted_is_told_and_counted() {
    let scope = scope();
    let map = function("function() { emit(this.k, {v: this.v}); emit(undefined, 1) }");
    let emitted = scope.emits(&map, &rawdoc! { "k": "x", "v": 2.0 }).expect("emitted");
    assert_eq!(
        emitted,
        [rawdoc! { "k": "x", "v": { "v": 2.0 } }, rawdoc! { "k": null, "v": 1.0 }]
    );
    let wrong = function("function() { try { emit(1) } catch (e) {} }");
    assert_eq!(scope.emits(&wrong, &rawdoc! {}), Err(ScriptError::EmitArguments));
    assert_eq!(scope.emits(&map, &rawdoc! {}).map(|emitted| emitted.len()), Ok(2));
    let outside = call(&scope, "emit(1, 2)", doc! {});
    assert!(matches!(outside, Err(ScriptError::Exception(_))), "{outside:?}");
}

#[test]
fn an_int32_that_stays_where_it_was_is_one_again() {
    let scope = scope();
    let kept = "function(d) { d.b += 1; d.new = 1; d.c = 1.5; return [d, d.a, d.list] }";
    let document = doc! { "a": 1, "b": 2, "c": 3, "f": 4.0, "sub": { "x": 5 }, "list": [6, 7.0] };
    let changed = doc! { "a": 1, "b": 3, "c": 1.5, "f": 4.0, "sub": { "x": 5 }, "list": [6, 7.0], "new": 1.0 };
    let wanted = Bson::Array(vec![
        changed.into(),
        Bson::Double(1.0),
        Bson::from(vec![Bson::Int32(6), Bson::Double(7.0)]),
    ]);
    assert_eq!(call(&scope, kept, doc! { "0": document }), Ok(wanted));
    // One that is kept from an earlier call has no original.
    let keep = "function(d) { globalThis.kept = d; return d }";
    assert_eq!(call(&scope, keep, doc! { "0": { "a": 1 } }), Ok(doc! { "a": 1 }.into()));
    let give = "function(d) { return kept }";
    assert_eq!(
        call(&scope, give, doc! { "0": { "a": 1 } }),
        Ok(doc! { "a": 1.0 }.into())
    );
    let emitted = scope.emits(&function("function() { emit(this.k, this) }"), &rawdoc! { "k": 1 });
    assert_eq!(emitted, Ok(vec![rawdoc! { "k": 1.0, "v": { "k": 1 } }]));
}

/// Originals are outside of the heap, where a name of many objects is there once; they count all the same.
#[test]
fn originals_count_with_the_heap() {
    let name = "x".repeat(1 << 20);
    let documents = |count: usize| -> Document {
        let documents = (0..count).map(|index| (index.to_string(), doc! { name.clone(): 1 }.into()));
        documents.collect()
    };
    let source = "function() { return arguments.length }";
    assert_eq!(call(&scope(), source, documents(2)), Ok(Bson::Double(2.0)));
    assert_eq!(call(&scope(), source, documents(12)), Err(ScriptError::OutOfMemory));
}

/// A document with all that is nested in it is kept once.
#[test]
fn nested_originals_share_their_bytes() {
    let mut nested = doc! { "text": "x".repeat(1 << 20), "n": 1 };
    for _ in 0..60 {
        nested = doc! { "n": 1, "o": nested };
    }
    let back = call(&scope(), "function(o) { return o }", doc! { "0": nested.clone() });
    assert!(back == Ok(nested.into()), "it comes back as it went");
}

#[test]
fn a_fold_hands_the_state_on() {
    let scope = scope();
    let add = function("function(state, a, b) { return state + a * b }");
    let lists = [rawdoc! { "0": 1, "1": 2 }, rawdoc! { "0": 3, "1": 4 }];
    let sum = scope.fold(&add, &rawdoc! { "": 100 }, lists.iter().map(|list| &**list));
    assert_eq!(sum, Ok(rawdoc! { "": 114.0 }));
}

/// Helpers that `mapReduce` has in its `scope`.
#[test]
fn code_among_globals_is_a_function() {
    let code = |code: &str| Bson::JavaScriptCode(code.to_owned());
    let with_scope = bson::JavaScriptCodeWithScope {
        code: "function(x) { return twice(x) + 1 }".to_owned(),
        scope: Document::new(),
    };
    let globals = doc! {
        "twice": code("function(x) { return 2 * x }"),
        "more": with_scope,
        "expression": code("1 + 2"),
        "inner": { "code": code("function() {}") },
    };
    let source = "function(n) { return [twice(n), more(n), expression(), typeof inner.code].join() }";
    let function = Function::new(source, Some(Arc::new(raw(&globals))));
    let result = scope().call(&function, Receiver::Empty, &rawdoc! { "n": 3 });
    assert_eq!(result, Ok(rawdoc! { "": "6,7,3,object" }));
    let broken = doc! { "broken": code("function( {") };
    let function = Function::new("function() { return 1 }", Some(Arc::new(raw(&broken))));
    let result = scope().call(&function, Receiver::Empty, &rawdoc! {});
    assert!(matches!(result, Err(ScriptError::Exception(_))), "{result:?}");
}

#[test]
fn functions_find_their_globals() {
    let globals = Some(Arc::new(rawdoc! { "factor": 10, "list": [1] }));
    let function = Function::new("function(n) { return n * factor + list.length }", globals);
    let result = scope().call(&function, Receiver::Empty, &rawdoc! { "0": 2 });
    assert_eq!(result, Ok(rawdoc! { "": 21.0 }));
    // Functions of one operation share them, also what one has made of them.
    let globals = Some(Arc::new(rawdoc! { "count": 0 }));
    let scope = scope();
    for expected in [1.0, 2.0] {
        let function = Function::new("function() { return ++count }", globals.clone());
        let counted = scope.call(&function, Receiver::Empty, &rawdoc! {});
        assert_eq!(counted, Ok(rawdoc! { "": expected }));
    }
}

#[test]
fn results_that_are_no_bson_are_refused() {
    let not_bson = |source: &str| assert_eq!(evaluated(source), Err(ScriptError::NotBson(String::new())), "{source}");
    not_bson("Symbol('x')");
    not_bson("10n");
    not_bson("new Date(NaN)");
    not_bson("Object.assign(Object.create(ObjectId.prototype), {str: 'zz'})");
    not_bson("Object.create(NumberLong.prototype)");
    not_bson("let b = BinData(0, ''); b.type = 999; return b");
    let cycle = evaluated("let a = {}; a.a = a; return a");
    assert_eq!(cycle, Err(ScriptError::TooDeep { max: DEPTH_MAX }));
    let large = evaluated("'x'.repeat(17 << 20)");
    assert!(matches!(large, Err(ScriptError::TooLarge { .. })), "{:?}", large.err());
    assert_eq!(
        evaluated("({'a\\0': 1})"),
        Err(ScriptError::ZeroInName("a\0".to_owned()))
    );
    // A half of a pair is no text.
    assert_eq!(evaluated("'a\\ud800b'"), Ok("a\u{fffd}b".into()));
}

#[test]
fn depth_is_bounded_on_the_limit_and_one_past_it() {
    let nested = |levels: usize| format!("let o = {{}}; for (let i = 1; i < {levels}; i++) o = {{o}}; return o");
    assert!(evaluated(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(
        evaluated(&nested(DEPTH_MAX + 1)),
        Err(ScriptError::TooDeep { max: DEPTH_MAX })
    );
}

#[test]
fn scripts_end_when_they_are_told() {
    for source in [
        "while (true) {}",
        "for (;;) { try { null.x } catch (e) {} }",
        "function f() { try { while (true) {} } finally { f() } } f()",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "while (true) [1, 2, 3].map(x => x)",
        "[3, 2, 1].sort(() => { while (true) {} })",
        "JSON.stringify({toJSON() { while (true) {} }})",
        "({get a() { while (true) {} }})",
    ] {
        let scope = ending_scope(10);
        assert_eq!(call(&scope, source, doc! {}), Err(ScriptError::Interrupted), "{source}");
    }
}

#[test]
fn a_scope_goes_on_after_an_error() {
    let scope = scope();
    for source in [
        "throw 1",
        "null.x",
        "(function f() { f() })()",
        "let a = []; while (true) a.push(new Array(1000))",
    ] {
        assert!(call(&scope, source, doc! {}).is_err(), "{source}");
    }
    assert_eq!(call(&scope, "1 + 1", doc! {}), Ok(Bson::Double(2.0)));
}

#[test]
fn a_full_heap_is_told_and_may_be_given_more() {
    let scope = scope();
    let source = "new Uint8Array(40 << 20).length";
    assert_eq!(call(&scope, source, doc! {}), Err(ScriptError::OutOfMemory));
    let larger = scope.renewed(64 << 20).expect("a scope").expect("no call had a result");
    assert_eq!(call(&larger, source, doc! {}), Ok(Bson::Double(f64::from(40 << 20))));
}

#[test]
fn a_scope_is_renewed_unless_something_was_left_in_it() {
    let globals = Some(Arc::new(
        rawdoc! { "factor": 10, "list": [1], "when": bson::DateTime::MIN },
    ));
    let renewed = |source: &str| {
        let scope = scope();
        let function = Function::new(source, globals.clone());
        scope
            .call(&function, Receiver::Empty, &rawdoc! { "0": { "a": 1 } })
            .expect("a result");
        scope.renewed(HEAP_BYTES).expect("a scope")
    };
    let scope =
        renewed("(o) => { let n = [factor, o, tojson(list)]; obj = n; return n.sort() }").expect("nothing is left");
    let factor = scope.call(&function("factor"), Receiver::Empty, &rawdoc! {});
    assert_eq!(factor, Ok(rawdoc! { "": 10.0 }));
    for source in [
        "() => { factor++ }",
        "() => { list.push(2) }",
        "() => { list[0] = 2 }",
        "() => { delete list[0] }",
        "() => { when.setTime(5) }",
        "() => { left = 1 }",
        "function f() { f.count = 1 }",
        "() => { Object.prototype[Symbol()] = 1 }",
        "() => { Object.freeze(list) }",
        "() => { String.prototype.at = () => 1 }",
    ] {
        assert!(renewed(source).is_none(), "{source}");
    }
}

/// What only compiles a function runs nothing of it, however it closes the brackets around it.
#[test]
fn checking_a_function_runs_nothing() {
    let is_asked = Arc::new(AtomicU32::new(0));
    let asked = is_asked.clone();
    let is_interrupted = Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) > 10);
    for source in [
        "function() {}), (() => { while (true) {} })(), (function() {}",
        "function() {}, (() => { while (true) {} })()",
        "1); }); while (true) {} (function() { return (1",
        "} ()); while (true) {} (function() {",
    ] {
        let checked = Scope::check(&function(source), HEAP_BYTES, is_interrupted.clone());
        assert!(!matches!(checked, Err(ScriptError::Interrupted)), "{source}");
    }
    assert!(Scope::check(&function("function( {"), HEAP_BYTES, is_interrupted).is_err());
}

/// A script chooses how long its messages are, and its caller does not copy them whole.
#[test]
fn what_errors_tell_is_cut() {
    for source in [
        "throw 'x'.repeat(1 << 20)",
        "throw new Error('x'.repeat(1 << 20))",
        "let e = new Error(); e.name = 'x'.repeat(1 << 20); throw e",
        "let e = new Error(); e.stack = 'x'.repeat(1 << 20); throw e",
        "throw {toString() { return 'x'.repeat(1 << 20) }}",
        "({['x'.repeat(1 << 20)]: 10n})",
        "({['x'.repeat(1 << 20) + '\\0']: 1})",
        "null['x'.repeat(1 << 20)]",
    ] {
        let text = evaluated(source).expect_err("it is an error").to_string();
        assert!(text.len() < 10_000, "{source}: {} bytes", text.len());
    }
}

/// Whatever these do, it is an error or a value, and the scope can be left.
#[test]
fn hostile_scripts_are_errors() {
    for source in [
        "(function f() { f() })()",
        "(function f(n) { return [n].map(f) })(1)",
        "JSON.parse('['.repeat(1e6))",
        "let o = {}; for (let i = 0; i < 1e5; i++) o = {o}; return o",
        "let a = []; a[2 ** 32 - 2] = 1; return a.indexOf(5)",
        "Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)",
        "let a = []; a.length = 2 ** 32 - 1; new Set(a)",
        "Object.defineProperty(Object.prototype, 'a', {set() { throw 1 }}); return {a: 1}",
        "Object.prototype.toString = null; Array.prototype.push = null; return [1]",
        "throw {toString() { throw {toString() { throw 1 }} }}",
        "throw null",
        "throw undefined",
        "throw Object.create(Error.prototype, {message: {get() { throw 1 }}, name: {get() { throw 2 }}})",
        "Object.create(Date.prototype)",
        "Object.create(RegExp.prototype)",
        "new Function('return this')()",
        "(async function() { await 1 })(); return Promise.resolve(1)",
        "function* g() { yield* g() } return [...g()]",
        "2n ** 100000n > 1n",
        "'a'.repeat(1 << 22).indexOf('a'.repeat(1 << 21) + 'b')",
        "'a'.repeat(1 << 22).split('a'.repeat(1 << 21) + 'b')",
        "'a'.repeat(1 << 22).replace({toString: () => 'a'.repeat(1 << 21) + 'b'}, '')",
        "'a'.padEnd(2 ** 30)",
        "new Array(2 ** 32 - 1).join('x')",
        "Reflect.ownKeys(globalThis).map((k) => globalThis[k])",
        "delete globalThis.Array; delete globalThis.Object; return [1]",
        "({__proto__: {inherited: 1}, ['__proto__']: 5})",
        "NumberDecimal('x'.repeat(1000))",
        "emit(1, {get a() { emit(1, this) }})",
        "import('x')",
        "class A extends null { constructor() { return 1 } } new A()",
        "let x = x",
        "label: for (;;) { break label } return new.target",
        "eval('while (false) {} 1')",
        "}) ; globalThis.x = (function() {",
        "\0",
        "",
    ] {
        let scope = ending_scope(100_000);
        let _ = call(&scope, source, doc! { "0": { "__proto__": 1, "constructor": 2 } });
        drop(scope);
    }
}

/// Nesting of the source ends neither the parser nor what looks at it before.
#[test]
fn sources_that_nest_are_errors() {
    for piece in [
        "(",
        "[",
        "{",
        "async ",
        "a => ",
        "function() {",
        "!",
        "`${",
        "/*",
        "new ",
        "a ? ",
        "x = ",
    ] {
        let source = piece.repeat(200_000);
        let checked = Scope::check(&function(&source), HEAP_BYTES, Arc::new(|| false));
        assert!(checked.is_err(), "{piece}");
    }
}

/// Scripts that run out of memory at every possible place. The second one ended the process: the error of a full heap
/// was made while an object was half changed, and making it looked for garbage.
#[test]
fn a_heap_that_fills_up_anywhere_is_an_error() {
    for source in [
        "let o = {a: [1, 'x', /a/, new Date(), NumberLong(5), ObjectId()], f() {}}; \
         for (let i = 0; i < 2000; i++) o = {o: [o.a, {i}, 'x'.repeat(i)], a: tojson({i})}; return o.a",
        "Object.assign(new Function('a', 'return 1'), String(((1).__proto__ = NumberLong(5))).repeat(1000))",
    ] {
        let mut filled = 0;
        for heap_kb in (60..1000).step_by(3) {
            let Ok(scope) = Scope::new(heap_kb << 10, Arc::new(|| false)) else {
                filled += 1;
                continue;
            };
            if call(&scope, source, doc! { "0": { "a": [1, "x".repeat(10_000)] } }).is_err() {
                filled += 1;
            }
        }
        assert!(filled > 0, "some heap was too small for {source}");
    }
}

/// What refers to itself only is freed between calls, or the heap would be full of it.
#[test]
fn circles_are_freed() {
    let scope = scope();
    let circle = function("function() { let a = {s: 'x'.repeat(10000)}; a.a = a; return 1 }");
    for _ in 0..20_000 {
        scope
            .call(&circle, Receiver::Empty, &rawdoc! {})
            .expect("there is room");
    }
}

/// Scripts from a small grammar: what a client may write, put together at random.
fn script() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "1",
        "'x'",
        "this",
        "a",
        "[]",
        "({})",
        "null",
        "undefined",
        "-0.5",
        "/a*/g",
        "Symbol()",
        "1n",
        "NaN",
        "globalThis",
        "Object.prototype",
        "(() => a)",
        "new Date(0)",
        "ObjectId()",
        "NumberLong(5)",
        "BinData(0, 'aaaa')",
        "arguments",
        "new Map([[1, 2]])",
        "(function* () { yield a })()",
        "new Uint8Array(9)",
        "Promise.resolve(a)",
        "MinKey",
    ]);
    atom.prop_map(str::to_owned).prop_recursive(5, 30, 3, |inner| {
        let shapes = vec![
            "[{0}, {1}]",
            "({a: {0}, [{1}]: {2}})",
            "({0} + {1})",
            "((a) => [a, {1}])({0})",
            "JSON.stringify({0})",
            "Reflect.ownKeys({0})",
            "String({0}).repeat(1000)",
            "Array.from({length: 1000}, () => {0})",
            "[...({0})]",
            "({0})[{1}]",
            "tojson({0})",
            "NumberLong({0})",
            "Object.create({0})",
            "(function f() { return {0}, f() })()",
            "({0} instanceof {1})",
            "Object.defineProperty({0}, {1}, {get() { return {2} }, enumerable: true})",
            "Object.assign({0}, {1})",
            "(({0}).__proto__ = {1})",
            "(() => { try { throw {0} } catch (e) { return [e, {1}] } finally { {2} } })()",
            "[3, 1, 2].sort(() => {0})",
            "'aab'.replace(/a/g, () => {0})",
            "emit({0}, {1})",
            "new Function('a', 'return ' + {0})",
            "({0})({1})",
            "new ({0})({1})",
            "(delete ({0})[{1}], {2})",
            "structuredClone({0})",
            "Object.freeze({0})",
            "({0})?.map((x) => {1})",
            "(() => { let x = {0}; for (let i = 0; i < 3000; i++) x = [x, {1}]; return x })()",
        ];
        (prop::sample::select(shapes), inner.clone(), inner.clone(), inner)
            .prop_map(|(shape, one, two, three)| shape.replace("{0}", &one).replace("{1}", &two).replace("{2}", &three))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("SCRIPT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
    ))]

    /// Any script in any heap is a value or an error, and the scope can be left.
    #[test]
    fn any_script_keeps_the_limits(source in script(), heap_kb in 200_usize..2000, asked_max in 0_u32..200) {
        let asked = AtomicU32::new(0);
        let is_interrupted = move || asked.fetch_add(1, Ordering::Relaxed) >= asked_max;
        if let Ok(scope) = Scope::new(heap_kb << 10, Arc::new(is_interrupted)) {
            let source = format!("function(a) {{ return {source} }}");
            let arguments = doc! { "0": { "a": [1, "x", { "b": 2.5 }], "o": bson::oid::ObjectId::new() } };
            if let Ok(value) = call(&scope, &source, arguments) {
                let written = RawDocumentBuf::try_from(&doc! { "": value });
                prop_assert!(written.is_ok());
            }
        }
    }
}
