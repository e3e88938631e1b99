//! Scripts that mean ill, and that they end.

use super::*;

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

/// A step of the language that goes through so much by itself was not to be ended, and neither was its operation.
#[test]
fn single_steps_that_take_long_end_when_they_are_told() {
    for source in [
        "let a = []; for (let i = 0; i < 60; i++) a = [a, a]; return a.flat(Infinity)",
        "let a = []; for (let i = 0; i < 60; i++) a = [a, a]; return a.flatMap((x) => x.flat(60))",
        "let h = []; h.length = 2 ** 32 - 1; return [h, h].flat()",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return keys.drop(4e9).next()",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return keys.includes(-1)",
        "let it = [], all = it.values(); it.length = 2 ** 32 - 1; return all.join('')",
        "let it = [], all = it.values(); it.length = 2 ** 32 - 1; return new Set(all).size",
        "let it = [], all = it.values(); it.length = 2 ** 32 - 1; return all.some(Boolean)",
        "'a'.repeat(30000000).replace(/(?:)/g, '')",
        "'a'.repeat(30000000).match(/(?:)/g)",
        "'a'.repeat(30000000).replace(Object.preventExtensions(/(?:)/g), '')",
        "let r = /(?:)/g; Object.defineProperty(RegExp, Symbol.hasInstance, {value: () => false}); return 'a'.repeat(3e7).replace(r, '')",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return Math.sumPrecise(keys)",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return new Set(['x', 'y']).isDisjointFrom({size: 1, has() {}, keys() { return keys }})",
        "let it = [], keys = it.values(); it.length = 2 ** 32 - 1; return new Set([undefined, 'y']).isSupersetOf({size: 1, has() {}, keys() { return keys }})",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return new Set(['x', 'y']).intersection({size: 1, has() {}, keys() { return keys }})",
        "let it = [], keys = it.keys(); it.length = 2 ** 32 - 1; return new Set(['x', 'y']).difference({size: 1, has() {}, keys() { return keys }})",
        "'a'.repeat(1 << 20).indexOf('a'.repeat(1 << 19) + 'b')",
        "'a'.repeat(1 << 20).lastIndexOf('a'.repeat(1 << 19) + 'b')",
        "'a'.repeat(1 << 20).split('a'.repeat(1 << 19) + 'b')",
        "'a'.repeat(1 << 20).replace({toString: () => 'a'.repeat(1 << 19) + 'b'}, '')",
        "String = (x) => x; return 'a'.repeat(1 << 20).indexOf({toString: () => 'a'.repeat(1 << 19) + 'b'})",
        // These are never asked, but for memory.
        "new RegExp('[\\\\p{L}]'.repeat(100000), 'ui')",
        "Object.assign({}, 'x'.repeat(3000000))",
    ] {
        // A larger heap would only be filled later.
        let asked = AtomicU32::new(0);
        let is_interrupted = move || asked.fetch_add(1, Ordering::Relaxed) >= 20;
        let scope = Scope::new(512 << 20, Arc::new(is_interrupted)).expect("a scope");
        assert_eq!(call(&scope, source, doc! {}), Err(ScriptError::Interrupted), "{source}");
    }
}

/// Where a step can neither be ended nor be done in other steps, what it would go through is refused.
#[test]
fn what_a_single_step_would_go_through_is_bounded() {
    for source in [
        "[].concat({[Symbol.isConcatSpreadable]: true, length: 2 ** 52})",
        "let h = []; h.length = 2 ** 32 - 1; return JSON.stringify({}, h)",
        "new Uint8Array({length: 1e8})",
        "new Uint8Array(Object.defineProperty(() => 1, 'length', {value: 1e8}))",
        "Uint8Array.from({length: 1e9})",
        "new Uint8Array(1).set({length: 1e9})",
        "new Uint8Array(1).set({length: 1e9, [Symbol.iterator]: () => [].values()})",
        "'\\u0301\\u0323'.repeat(300000).normalize('NFD')",
        "let s = '\\u0301\\u0323'.repeat(300000); return s.localeCompare(s + 'a')",
        "'a'.localeCompare('\\uff9e'.repeat(300000))",
    ] {
        let error = evaluated(source).expect_err(source);
        assert!(error.to_string().contains("RangeError"), "{source}: {error}");
    }
}

/// What stands in for functions of the language does what they do.
#[test]
fn guarded_functions_are_those_of_the_language() {
    for (source, wanted) in [
        ("[1, [2, [3, [4]]]].flat()", "[1,2,[3,[4]]]"),
        ("[1, [2, , [3, [4]]]].flat(2)", "[1,2,3,[4]]"),
        ("[[[[1]]]].flat('0')", "[[[[1]]]]"),
        ("[1, [2, [3, [4]]]].flat(1.5)", "[1,2,[3,[4]]]"),
        (
            "let a = [1]; for (let i = 0; i < 20000; i++) a = [a, 2]; let b = a.flat(Infinity); return [b.length, b[0]]",
            "[20001,1]",
        ),
        ("[[1, , 2], [3], {a: 1}].flat()", "[1,2,3,{\"a\":1}]"),
        ("[[1, , 2], [3]].flat()", "[1,2,3]"),
        ("Array.prototype.flat.call('ab')", "[\"a\",\"b\"]"),
        ("Array.prototype.flatMap.call('ab', (x) => [x])", "[\"a\",\"b\"]"),
        ("[1, , 2].concat([3], 4)", "[1,null,2,3,4]"),
        ("Math.sumPrecise(new Set([1, 2]))", "3"),
        ("[...new Set([1, 2, 3]).intersection(new Set([2, 3, 4]))]", "[2,3]"),
        ("[...new Set([1, 2, 3]).difference(new Map([[2, 0]]))]", "[1,3]"),
        ("[...new Set([1]).union(new Set([5]))]", "[1,5]"),
        ("[1, 2].flatMap((x, i) => [x, [i]])", "[1,[0],2,[1]]"),
        ("[1].concat(2, [3, [4]], {length: 1})", "[1,2,3,[4],{\"length\":1}]"),
        (
            "[].concat({length: 2, 1: 5, [Symbol.isConcatSpreadable]: true})",
            "[null,5]",
        ),
        ("[1, 2, 3].values().drop(1).toArray()", "[2,3]"),
        ("[1, 2, 3].values().drop(9).toArray()", "[]"),
        (
            "JSON.parse(JSON.stringify({a: 1, b: {a: 2, c: 3}}, ['a', 'b']))",
            "{\"a\":1,\"b\":{\"a\":2}}",
        ),
        ("[...new Uint8Array([1, 2, 3]).subarray(1).map((x) => 2 * x)]", "[4,6]"),
        (
            "[...new Float64Array(new Set([2, NaN, 1])).sort()].map(String)",
            "[\"1\",\"2\",\"NaN\"]",
        ),
        ("[...Uint8Array.from({length: 2}, (_, i) => i + 1)]", "[1,2]"),
        (
            "let u = new Uint8Array(new ArrayBuffer(4), 1, 2); u.set([7, 8]); return [...u, u.byteOffset]",
            "[7,8,1]",
        ),
        (
            "[Uint8Array.BYTES_PER_ELEMENT, new Uint8Array(3) instanceof Uint8Array]",
            "[1,true]",
        ),
        (
            "let r = /a/g; return ['a'.repeat(70000).replace(r, 'bc').length, 'exec' in {...r}]",
            "[140000,false]",
        ),
        ("'ab'.repeat(40000).match(/b/g).length", "40000"),
        ("['e\\u0301'.normalize('NFC').length, 'a'.localeCompare('b')]", "[1,-1]"),
    ] {
        let text = evaluated(&format!(
            "function() {{ return JSON.stringify((function() {{ {} }})()) }}",
            body(source)
        ));
        assert_eq!(text, Ok(Bson::String(wanted.to_owned())), "{source}");
    }
}

fn body(source: &str) -> String {
    match source.contains("return") {
        true => source.to_owned(),
        false => format!("return {source}"),
    }
}

/// Two ordinary texts of 64 thousand characters were refused.
#[test]
fn long_texts_are_searched_for_in_long_texts() {
    for (source, wanted) in [
        ("t.includes(w)", "true"),
        ("t.indexOf(w)", "70000"),
        ("t.indexOf(w, 70001)", "-1"),
        ("t.lastIndexOf(w)", "70000"),
        ("t.lastIndexOf(w, 69999)", "-1"),
        ("t.replace(w, '[$`$&$$]').length", "310004"),
        ("t.replaceAll(w, (m, at) => at).slice(69999, 70006)", "b70000a"),
        ("t.split(w).map((part) => part.length).join()", "70000,70000"),
        ("(w + w).split(w).length", "3"),
        ("t.split(w, 1).length", "1"),
        ("w.indexOf(t)", "-1"),
    ] {
        let source = format!(
            "function() {{ let w = 'xy'.repeat(50000) + 'z', p = 'ab'.repeat(35000), t = p + w + p;
             return String({source}) }}"
        );
        assert_eq!(evaluated(&source), Ok(Bson::String(wanted.to_owned())), "{source}");
    }
}

#[test]
fn sleeping_ends_when_it_is_told() {
    let scope = ending_scope(3);
    assert_eq!(
        call(&scope, "try { sleep(1e9) } catch (e) {}", doc! {}),
        Err(ScriptError::Interrupted)
    );
}

/// What only compiles a function runs nothing of it, however it closes the brackets around it.
#[test]
fn checking_a_function_runs_nothing() {
    let is_asked = Arc::new(AtomicU32::new(0));
    let asked = is_asked.clone();
    let is_interrupted = Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) > 1000);
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
    fn any_script_keeps_the_limits(source in script(), heap_kb in 2200_usize..5000, asked_max in 0_u32..200) {
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
