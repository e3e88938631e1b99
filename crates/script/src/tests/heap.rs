//! Full heaps, and what is left in them.

use super::*;
use crate::limits::SOURCE_BYTES_MAX;

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

#[test]
fn a_full_heap_is_told_and_may_be_given_more() {
    let scope = scope();
    let source = "new Uint8Array(40 << 20).length";
    assert_eq!(call(&scope, source, doc! {}), Err(ScriptError::OutOfMemory));
    let larger = scope.renewed(64 << 20).expect("a scope").expect("no call had a result");
    assert_eq!(call(&larger, source, doc! {}), Ok(Bson::Double(f64::from(40 << 20))));
}

/// The exception of a heap that is full to the last byte is `null`, and scripts may catch it.
#[test]
fn a_heap_that_small_objects_fill_is_full() {
    for source in [
        "let a = []; for (let i = 0; i < 1e6; i++) a.push({i}); return a.length",
        "let a = []; try { for (let i = 0; i < 1e6; i++) a.push({i}) } catch (e) {} return a.length",
        "let a = []; for (let i = 0; i < 1e6; i++) a.push([i, 'x' + i])",
        "let o = {}; for (let i = 0; i < 1e6; i++) o = {o}",
    ] {
        assert_eq!(evaluated(source), Err(ScriptError::OutOfMemory), "{source}");
    }
    let larger = Scope::new(512 << 20, Arc::new(|| false)).expect("a scope");
    let source = "let a = []; for (let i = 0; i < 2e5; i++) a.push({i}); return a.length";
    assert_eq!(call(&larger, source, doc! {}), Ok(Bson::Double(200_000.0)));
    assert_eq!(
        evaluated("throw null"),
        Err(ScriptError::Exception("uncaught exception: null".to_owned()))
    );
}

/// The engine's compiler goes on after a refused request, and reads and writes past what it has.
#[test]
fn nothing_is_compiled_in_a_full_heap() {
    let texts = [
        "(function*(){ yield* [1] })",
        "(function(){class A{ x=1; #p=2; get q(){return this.#p} }})",
        "let {a,b:[c,d]=[1,2],...r}={}",
    ];
    for text in texts {
        for compile in [
            format!("eval({text:?})"),
            format!("(0, eval)({text:?})"),
            format!("new Function({text:?})"),
            format!("Function.prototype.constructor({text:?})"),
            format!("(function* () {{}}).constructor({text:?})"),
            format!("(async () => {{}}).constructor({text:?})"),
            format!("Reflect.construct((async function* () {{}}).constructor, [{text:?}])"),
        ] {
            let source = format!(
                "function() {{ let keep = []; try {{ for (;;) keep.push(new Uint8Array(5000)) }} catch (e) {{}} let s; \
                 for (let n = 0; n < 6000; n += 7) {{ s = null; try {{ s = new Uint8Array(n); {compile} }} \
                 catch (e) {{}} }} return 1 }}"
            );
            let scope = Scope::new(5 << 20, Arc::new(|| false)).expect("a scope");
            assert_eq!(
                call(&scope, &source, doc! {}),
                Err(ScriptError::OutOfMemory),
                "{compile}"
            );
            // Nearly full is not full: nothing was refused before.
            let source = format!(
                "function(n) {{ let keep = []; for (let i = 0; i < n; i++) keep.push(new Uint8Array(1000)); \
                 try {{ {compile} }} catch (e) {{}} return 1 }}"
            );
            let mut refused = 0;
            for n in (0..4500).step_by(391) {
                let scope = Scope::new(5 << 20, Arc::new(|| false)).expect("a scope");
                refused += usize::from(call(&scope, &source, doc! { "0": n }).is_err());
            }
            assert!(refused > 0, "{compile}");
        }
    }
}

#[test]
fn texts_that_are_long_are_not_compiled() {
    let source = format!("let a = '{}'; return 1", "x".repeat(SOURCE_BYTES_MAX));
    let checked = Scope::check(&function(&source), HEAP_BYTES, Arc::new(|| false));
    assert!(
        matches!(checked, Err(ScriptError::SourceTooLarge { .. })),
        "{checked:?}"
    );
    let long = evaluated("try { eval('1;'.repeat(1 << 18)) } catch (e) { return e.name }");
    assert_eq!(long, Ok("RangeError".into()));
}

/// Garbage that refers to itself is looked for when the heap fills up, not only after many calls: what a script has
/// left in its globals cannot be taken into a larger heap.
#[test]
fn garbage_of_large_calls_is_freed() {
    let scope = scope();
    let source = "function() { globalThis.n = (globalThis.n || 0) + 1; \
        let a = {s: new Array(50000).fill(1)}; a.a = a; return n }";
    let function = function(source);
    for n in 1..200 {
        let counted = scope.call(&function, Receiver::Empty, &rawdoc! {});
        assert_eq!(counted, Ok(rawdoc! { "": f64::from(n) }));
    }
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
        "() => { globalThis.left = new Uint8Array(20 << 20) }",
        "() => { globalThis.left = new Array(500000).fill(0) }",
    ] {
        assert!(renewed(source).is_none(), "{source}");
    }
}

/// Scripts that run out of memory at every possible place, also where an object is half changed: making the error must
/// not look for garbage then.
#[test]
fn a_heap_that_fills_up_anywhere_is_an_error() {
    for source in [
        "let o = {a: [1, 'x', /a/, new Date(), NumberLong(5), ObjectId()], f() {}}; \
         for (let i = 0; i < 2000; i++) o = {o: [o.a, {i}, 'x'.repeat(i)], a: tojson({i})}; return o.a",
        "Object.assign(new Function('a', 'return 1'), String(((1).__proto__ = NumberLong(5))).repeat(1000))",
    ] {
        let mut filled = 0;
        for heap_kb in (2200..4000).step_by(37) {
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
