//! Values there and back, and what scripts find.

mod heap;
mod hostile;

use super::*;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc, rawdoc};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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
        Bson::Document(fields) => Bson::Document(expected_fields(fields)),
        Bson::JavaScriptCodeWithScope(mut code) => {
            code.scope = expected_fields(code.scope);
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

fn expected_fields(fields: Document) -> Document {
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name, expected_part(value))).collect()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{0,3}", "\\PC{0,5}"]
}

fn leaf() -> impl Strategy<Value = Bson> {
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
        any::<i64>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms))),
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

/// Reading needs no stack for each level.
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

/// Also in another piece of stack than the one where their scope was made.
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
        ("NumberLong(0, 1, 2)", Bson::Int64(4_294_967_298)),
        ("new NumberLong(0, -1, 4294967295)", Bson::Int64(-1)),
        ("UUID().toString().length + UUID().subtype()", Bson::Double(48.0)),
        ("UUID().hex() == UUID().hex()", false.into()),
        (
            "['2024-13-01', '2023-02-29', '2024-01-01T24:00:00Z'].filter(d => { try { ISODate(d) } catch (e) { return 1 } }).length",
            Bson::Double(3.0),
        ),
        ("MinKey()", Bson::MinKey),
        ("new MaxKey()", Bson::MaxKey),
        (
            "tojson([MinKey, MaxKey()])",
            r#"[ { "$minKey" : 1 }, { "$maxKey" : 1 } ]"#.into(),
        ),
        (
            "try { Timestamp(-1, 0) } catch (e) { return e.name }",
            "RangeError".into(),
        ),
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
        ("var d = 5;\nd > 4\n  && d < 100", true.into()),
        ("var returned = 5; returned > 4", true.into()),
        ("// don't count\nvar d = 5; d > 4", true.into()),
        ("var re = /'/; re.test(\"'\") && 5 > 4", true.into()),
        ("var d = 5; d > 4; // a comment; of two", true.into()),
        ("let d = 5; if (d > 100) { d = 0 } d > 4", true.into()),
        ("function f(d) { return d > 4; } f(5)", true.into()),
        ("var d = 1 // one\n// two\n/* three */ d > 0", true.into()),
        ("var s = '// no comment'\ns.length", Bson::Double(13.0)),
        ("var s = 1; `a;${s}\nb`", "a;1\nb".into()),
        ("var n = 1\n++n", Bson::Double(2.0)),
        // These are no statements of their own, where a careless look finds some.
        (
            "var f = function() { return g }, g = 3\nvar x = f\n(5); x == 3",
            true.into(),
        ),
        ("var g = x => x\n(5)", Bson::Undefined),
        ("var a = 1; if (a)\n a", Bson::Undefined),
        ("var a = 1; {a: 2}", Bson::Undefined),
        ("var a = 1; function f() {}", Bson::Undefined),
        ("do { var a = 1 } while (a > 5)\na", Bson::Double(1.0)),
        ("var a = 2; a /* b; */ + 1 /* c; d */", Bson::Double(3.0)),
        // Neither do texts and regular expressions end where a comment might begin.
        ("'a;//b' == 'a' + ';//b'", true.into()),
        ("'x;//'.indexOf(';//') >= 0", true.into()),
        ("/[;/*]/.test('/')", true.into()),
        ("var u = 'a;//b'; u == 'a;//b'; // c;", true.into()),
        ("() => 'a;//b'.split(';//')[1]", "b".into()),
        ("function f() { return ['a', 'b'].join(';//') }", "a;//b".into()),
        ("function() { return 1 }; // a", Bson::Double(1.0)),
    ] {
        assert_eq!(evaluated(source).unwrap(), value, "{source}");
    }
}

#[test]
fn a_last_expression_of_many_lines_is_found() {
    for (lines, end) in [(300, "\n"), (3000, "\n"), (300, "\r\n"), (3000, "\r\n")] {
        let list: String = (0..lines).map(|n| format!("{n},{end}")).collect();
        let expression = format!("var a = 5; [{end}{list}].indexOf(a) >= 0");
        assert_eq!(evaluated(&expression), Ok(true.into()), "{lines} lines");
        let returned = format!("var a = 5; return [{end}{list}].indexOf(a)");
        assert_eq!(evaluated(&returned), Ok(Bson::Double(5.0)), "{lines} lines");
        let block = format!(
            "if (true) {{ var a = 5;{end}{} return a }}",
            format!("a += 1;{end}").repeat(lines)
        );
        assert_eq!(evaluated(&block), Ok(Bson::Double(5.0 + lines as f64)), "{lines} lines");
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

/// The order of fields is data: documents that differ in it are not equal.
#[test]
fn fields_stay_in_their_order() {
    let scope = scope();
    let document = doc! { "b": 1, "10": 2, "2": 3, "a": { "9": 1, "x": 2, "1": 3 } };
    let back = call(&scope, "function(d) { return d }", doc! { "0": document.clone() });
    assert_eq!(back, Ok(document.clone().into()));
    let source = "function(d) { delete d['10']; d.new = 1; d['0'] = 5; d.b = 2.5; return d }";
    let changed = doc! { "b": 2.5, "2": 3, "a": { "9": 1, "x": 2, "1": 3 }, "0": 5.0, "new": 1.0 };
    assert_eq!(call(&scope, source, doc! { "0": document }), Ok(changed.into()));
}

/// What inherits from a document is no document that was read: all of its numbers are new.
#[test]
fn an_original_is_not_inherited() {
    let source = "function(d) { let o = Object.create(d); o.d = 7; return o }";
    let result = call(&scope(), source, doc! { "0": { "d": 1 } });
    assert_eq!(result, Ok(doc! { "d": 7.0 }.into()));
}

#[test]
fn dates_that_javascript_does_not_have_come_back() {
    let far = Bson::DateTime(bson::DateTime::from_millis(i64::MAX));
    let arguments = doc! { "0": { "until": far.clone() } };
    let back = call(
        &scope(),
        "function(d) { return [d.until, isNaN(d.until)] }",
        arguments.clone(),
    );
    assert_eq!(back, Ok(vec![far, true.into()].into()));
    let set = call(
        &scope(),
        "function(d) { d.until.setTime(5); return d.until }",
        arguments,
    );
    assert_eq!(set, Ok(Bson::DateTime(bson::DateTime::from_millis(5))));
}

/// Where a name has a value, what it is replaced by has that, too.
#[test]
fn names_with_half_a_pair_keep_their_values() {
    assert_eq!(evaluated("({['a\\ud800']: 5})"), Ok(doc! { "a\u{fffd}": 5.0 }.into()));
    let twice = evaluated("({['a\\ud800']: 5, ['a\\ud801']: 6})");
    assert_eq!(twice, Err(ScriptError::NotBson("a\u{fffd}".to_owned())));
}

/// Each number's original is found without a look through those before it.
#[test]
fn originals_of_many_numbers_are_found_at_once() {
    let numbers: Vec<Bson> = (0..200_000).map(Bson::Int32).collect();
    let fields: Document = (0..50_000).map(|n| (format!("f{n}"), Bson::Int32(n))).collect();
    let arguments = doc! { "0": numbers.clone(), "1": fields.clone() };
    let scope = Scope::new(256 << 20, Arc::new(|| false)).expect("a scope");
    let back = call(&scope, "function(a, b) { return [a, b] }", arguments);
    let wanted = Bson::Array(vec![Bson::Array(numbers), Bson::Document(fields)]);
    assert!(back == Ok(wanted), "they come back");
}

/// Writing needs no stack for each level.
#[test]
fn what_nests_is_written_at_the_end_of_the_stack() {
    let emit = || {
        let map = "function() { let o = {}; for (let i = 0; i < 147; i++) o = Code('x', {o}); let n = 0; \
            function f() { n++; try { f() } catch (e) {} if (n-- > 0) try { emit(1, o) } catch (e) {} } f() }";
        scope().emits(&function(map), &rawdoc! {}).map(|emitted| emitted.len())
    };
    let writing = std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(emit)
        .expect("a thread");
    let emitted = writing.join().expect("no panic").expect("documents");
    assert!(emitted > 100, "{emitted}");
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

/// Names of containers that are open are kept, and with a cycle all levels have the same ones.
#[test]
fn names_are_not_kept_beyond_the_size_of_a_result() {
    let scope = Scope::new(256 << 20, Arc::new(|| false)).expect("a scope");
    let cycle = "function() { let o = {}; o.o = o; for (let i = 0; i < 200000; i++) o['k' + i] = 1; return o }";
    let large = call(&scope, cycle, doc! {});
    assert!(matches!(large, Err(ScriptError::TooLarge { .. })), "{:?}", large.err());
    // One as large that is no cycle fits.
    let flat = "function() { let o = {}; for (let i = 0; i < 200000; i++) o['k' + i] = {a: 1}; return o }";
    assert!(call(&scope, flat, doc! {}).is_ok());
}

/// A document without int32 comes back as it was without a copy beside the heap.
#[test]
fn documents_that_javascript_has_no_less_of_are_not_kept() {
    let small = Scope::new(8 << 20, Arc::new(|| false)).expect("a scope");
    let documents: Vec<Bson> = (0..150)
        .map(|_| doc! { "s": "x".repeat(16 << 10), "n": 1.0 }.into())
        .collect();
    let source = "function(list) { return list.length }";
    assert_eq!(call(&small, source, doc! { "0": documents }), Ok(Bson::Double(150.0)));
}

/// What is too large is refused.
#[test]
fn a_large_text_is_refused() {
    let scope = Scope::new(512 << 20, Arc::new(|| false)).expect("a scope");
    for source in ["'x'.repeat(200 << 20)", "({['x'.repeat(100 << 20)]: 1})"] {
        let large = call(&scope, source, doc! {});
        assert!(matches!(large, Err(ScriptError::TooLarge { .. })), "{source}");
    }
}

#[test]
fn each_call_of_a_fold_is_told() {
    let told = std::rc::Rc::new(std::cell::Cell::new(0));
    let mut scope = scope();
    let counted = told.clone();
    scope.on_each_call(move || counted.set(counted.get() + 1));
    let lists = [rawdoc! { "0": 1 }, rawdoc! { "0": 3 }, rawdoc! { "0": 4 }];
    let lists = lists.iter().map(|list| &**list);
    let sum = scope.fold(
        &function("function(state, a) { return state + a }"),
        &rawdoc! { "": 0 },
        lists,
    );
    assert_eq!((sum, told.get()), (Ok(rawdoc! { "": 8.0 }), 3));
}

/// Arguments are made by scripts of the prelude: their time is that of the call that gets them.
#[test]
fn arguments_are_made_in_the_time_of_their_call() {
    let is_late = Arc::new(AtomicBool::new(false));
    let asked = is_late.clone();
    let is_interrupted = Arc::new(move || asked.load(Ordering::Relaxed));
    let mut scope = Scope::new(HEAP_BYTES, is_interrupted).expect("a scope");
    let begins = is_late.clone();
    scope.on_each_call(move || begins.store(false, Ordering::Relaxed));
    let ids: Vec<Bson> = (0..20_000)
        .map(|_| Bson::ObjectId(bson::oid::ObjectId::new()))
        .collect();
    for _ in 0..2 {
        is_late.store(true, Ordering::Relaxed);
        let counted = call(&scope, "function(ids) { return ids.length }", doc! { "0": ids.clone() });
        assert_eq!(counted, Ok(Bson::Double(20_000.0)));
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
fn what_compiles_texts_works_as_in_the_language() {
    for (source, wanted) in [
        ("eval('1 + 1')", Bson::Double(2.0)),
        ("eval(5)", Bson::Double(5.0)),
        ("eval('this === globalThis')", true.into()),
        ("new Function('a', 'b', 'return a + b')(1, 2)", Bson::Double(3.0)),
        ("Function('return 7')()", Bson::Double(7.0)),
        (
            "(() => 1) instanceof Function && Function.name == 'Function'",
            true.into(),
        ),
        (
            "[...(function*(){}).constructor('yield 1; yield 2')()].length",
            Bson::Double(2.0),
        ),
        ("(function*(){}).constructor.name", "GeneratorFunction".into()),
        (
            "class F extends Function {}; return new F('return 3')()",
            Bson::Double(3.0),
        ),
        ("(function() {}).constructor === Function", true.into()),
    ] {
        assert_eq!(evaluated(source), Ok(wanted), "{source}");
    }
}
