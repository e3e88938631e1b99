// What scripts find beside the language: BSON's types, and the functions that MongoDB's manual lists. It is evaluated
// once for each scope, before any script. `native` has what only the host can do.
//
// A value of a BSON type is known by a property of its prototype whose name is the symbol `tag`; what it holds is read
// back, and checked, by `to_bson.rs`. The host gets an object with the makers of such values.
(function (native) {
    "use strict";
    const global = globalThis;
    // Guards see what they guard by these, whatever scripts make of the globals.
    const { Array, Number, Object, String, Symbol } = global, isArray = Array.isArray;
    const tag = Symbol("bson"), held = Symbol("value"), origin = Symbol("origin");
    const hide = (object, name, value) => Object.defineProperty(object, name, { value });
    const typed = (constructor, kind) => hide(constructor.prototype, tag, kind);
    const quote = JSON.stringify;
    const pad = (number, digits) => String(number).padStart(digits, "0");

    // Natives that take an object for an array go through all of its indexes, however many it says there are, and
    // nothing ends them: so they get arrays only, and no longer ones than memory has.
    const ELEMENTS_MAX = 1 << 22;
    const asArray = (object, changes) => {
        if (isArray(object)) {
            if (object.length > ELEMENTS_MAX) throw new RangeError("the array is too long");
            return object;
        }
        if (changes) throw new TypeError("only arrays are changed");
        if (typeof object === "string") return object;
        const length = Number(Object(object).length);
        if (length > ELEMENTS_MAX) throw new RangeError("the array is too long");
        const copy = [];
        if (length > 0) copy.length = length;
        for (let i = 0; i < length; i++) if (i in object) copy[i] = object[i];
        return copy;
    };
    const changing = ["copyWithin", "fill", "pop", "push", "reverse", "shift", "sort", "splice", "unshift"];
    const apply = Reflect.apply, ownKeys = Reflect.ownKeys;
    // A sort without a comparison calls nothing, and so is never asked whether to go on.
    const SORTED_ALONE_MAX = 4096;
    const byText = (a, b) => {
        const [one, two] = [String(a), String(b)];
        return one < two ? -1 : one > two ? 1 : 0;
    };
    const concatenate = Array.prototype.concat, flattenOnce = Array.prototype.flat;
    for (const name of ownKeys(Array.prototype)) {
        const method = Array.prototype[name];
        if (typeof method !== "function" || name === "constructor") continue;
        const changes = changing.includes(name);
        const guarded = {
            [name](...rest) {
                for (let i = 0; i < rest.length; i++) if (isArray(rest[i])) asArray(rest[i], false);
                const array = asArray(this, changes);
                const sorts = (name === "sort" || name === "toSorted") && rest[0] === undefined;
                if (sorts && array.length > SORTED_ALONE_MAX) rest[0] = byText;
                return apply(method, array, rest);
            },
        }[name];
        Object.defineProperty(Array.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    const from = Array.from;
    Array.from = function (items, ...rest) {
        if (items !== null && items !== undefined && typeof items[Symbol.iterator] !== "function") {
            items = asArray(items, false);
        }
        return apply(from, Array, [items, ...rest]);
    };
    // Flattened and joined arrays may have many levels, and say of themselves how long they are: these loops are asked.
    const flatten = (into, array, depth) => {
        // What is around, from the inside out: more arrays may be than calls have room for.
        let around = null, i = 0, length = Number(array.length);
        while (true) {
            if (!(i < length)) {
                if (around === null) return into;
                ({ array, i, length, around } = around);
                depth++;
                continue;
            }
            const place = i++;
            if (!(place in array)) continue;
            const item = array[place];
            if (depth >= 1 && isArray(item)) {
                around = { array, i, length, around };
                array = item;
                i = 0;
                length = Number(item.length);
                depth--;
            } else into[into.length] = item;
        }
    };
    const spreadable = Symbol.isConcatSpreadable;
    // What the language joins by itself, at memory's speed: arrays that say nothing of themselves, and values.
    const isJoinedAlone = (items) => {
        let left = ELEMENTS_MAX;
        for (let i = 0; i < items.length; i++) {
            const item = items[i];
            if (item === null || (typeof item !== "object" && typeof item !== "function")) left -= 1;
            else if (isArray(item) && !(spreadable in item)) left -= item.length;
            else return false;
        }
        return left >= 0;
    };
    const joining = {
        flat(depth) {
            depth = depth === undefined ? 1 : Number(depth);
            const array = Object(asArray(this, false));
            if (depth === 1) {
                const items = flatten([], array, 0);
                return isJoinedAlone(items) ? apply(flattenOnce, items, []) : flatten([], items, 1);
            }
            return flatten([], array, depth);
        },
        flatMap(change, ...rest) {
            if (typeof change !== "function") throw new TypeError("not a function");
            const array = Object(asArray(this, false)), length = array.length, into = [];
            for (let i = 0; i < length; i++) {
                if (!(i in array)) continue;
                const item = apply(change, rest[0], [array[i], i, array]);
                if (isArray(item)) flatten(into, item, 0);
                else into[into.length] = item;
            }
            return into;
        },
        concat(...rest) {
            const items = [Object(this)], into = [];
            for (let k = 0; k < rest.length; k++) items[k + 1] = rest[k];
            if (isJoinedAlone(items)) return apply(concatenate, [], items);
            for (let k = 0; k < items.length; k++) {
                const item = items[k];
                const isObject = item !== null && (typeof item === "object" || typeof item === "function");
                const says = isObject ? item[spreadable] : undefined;
                if (!isObject || !(says === undefined ? isArray(item) : says)) {
                    into[into.length] = item;
                    continue;
                }
                const length = Number(item.length), start = into.length;
                if (length > ELEMENTS_MAX) throw new RangeError("the array is too long");
                if (length > 0) into.length = start + Math.trunc(length);
                for (let i = 0; i < length; i++) if (i in item) into[start + i] = item[i];
            }
            return into;
        },
    };
    for (const name of ownKeys(joining)) {
        Object.defineProperty(Array.prototype, name, { value: joining[name], writable: true, configurable: true });
    }
    // Iterators of arrays go on as far as the array says they do at each step, and these ask nobody between the steps.
    const Iterators = Object.getPrototypeOf(Object.getPrototypeOf([].values()));
    const askedSteps = (steps) => {
        if (steps === null || typeof steps !== "object") return steps;
        const next = steps.next;
        return {
            __proto__: Iterators,
            next: (...values) => apply(next, steps, values),
            get return() {
                const end = steps.return;
                return end === undefined || end === null ? end : (...values) => apply(end, steps, values);
            },
        };
    };
    for (const name of ["drop", "includes", "join"]) {
        const method = Iterators[name];
        if (method === undefined) continue;
        const guarded = {
            [name](...rest) {
                return apply(method, askedSteps(this), rest);
            },
        }[name];
        Object.defineProperty(Iterators, name, { value: guarded, writable: true, configurable: true });
    }
    const isObject = (value) => value !== null && (typeof value === "object" || typeof value === "function");
    const sumPrecisely = Math.sumPrecise;
    if (sumPrecisely !== undefined) {
        const guarded = {
            sumPrecise(items) {
                if (!isObject(items)) return apply(sumPrecisely, Math, [items]);
                const begin = items[Symbol.iterator];
                if (typeof begin !== "function") throw new TypeError("not iterable");
                return apply(sumPrecisely, Math, [{ [Symbol.iterator]: () => askedSteps(apply(begin, items, [])) }]);
            },
        }.sumPrecise;
        Object.defineProperty(Math, "sumPrecise", { value: guarded, writable: true, configurable: true });
    }
    const ofSets = ["difference", "intersection", "isDisjointFrom", "isSubsetOf", "isSupersetOf"];
    for (const name of [...ofSets, "symmetricDifference", "union"]) {
        const method = Set.prototype[name];
        if (method === undefined) continue;
        const guarded = {
            [name](other) {
                if (!isObject(other)) return apply(method, this, [other]);
                const size = other.size, has = other.has, keys = other.keys;
                const callable = (method) => typeof method === "function";
                return apply(method, this, [{
                    size,
                    has: callable(has) ? (value) => apply(has, other, [value]) : has,
                    keys: callable(keys) ? () => askedSteps(apply(keys, other, [])) : keys,
                }]);
            },
        }[name];
        Object.defineProperty(Set.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    const stringify = JSON.stringify;
    JSON.stringify = {
        stringify(value, replacer, space) {
            return stringify(value, isArray(replacer) ? asArray(replacer, false) : replacer, space);
        },
    }.stringify;
    // What is made of something that is not gone through by an iterator is copied first.
    const isView = ArrayBuffer.isView, iterator = Symbol.iterator;
    const getterOf = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
    const buffers = [ArrayBuffer, global.SharedArrayBuffer].filter(Boolean);
    const sizesOf = buffers.map((buffer) => getterOf(buffer.prototype, "byteLength"));
    const isBuffer = (object) => {
        for (let i = 0; i < sizesOf.length; i++) {
            try {
                apply(sizesOf[i], object, []);
                return true;
            } catch {}
        }
        return false;
    };
    const listed = (object) => {
        if (!isObject(object) || isView(object) || isBuffer(object)) return object;
        if (isArray(object)) return asArray(object, false);
        // Asked once: it may say something else the next time.
        const begin = object[iterator];
        if (typeof begin !== "function") return asArray(object, false);
        return { [iterator]: () => apply(begin, object, []) };
    };
    const byNumber = (a, b) => {
        if (a < b) return -1;
        if (a > b) return 1;
        if (a !== a || b !== b) return (a !== a) - (b !== b);
        return Object.is(b, -0) - Object.is(a, -0);
    };
    const NUMBERS_SORTED_ALONE_MAX = 1 << 20;
    const Typed = Object.getPrototypeOf(Uint8Array), lengthOf = getterOf(Typed.prototype, "length");
    const typedMethods = {
        sort: (method, array, rest) => {
            const isLong = rest[0] === undefined && apply(lengthOf, array, []) > NUMBERS_SORTED_ALONE_MAX;
            return apply(method, array, isLong ? [byNumber] : rest);
        },
        set: (method, array, rest) => {
            // It never goes by an iterator.
            if (isObject(rest[0]) && !isView(rest[0])) rest[0] = asArray(rest[0], false);
            return apply(method, array, rest);
        },
    };
    typedMethods.toSorted = typedMethods.sort;
    for (const name of ["set", "sort", "toSorted"]) {
        const method = Typed.prototype[name], guard = typedMethods[name];
        const guarded = { [name](...rest) { return guard(method, this, rest); } }[name];
        Object.defineProperty(Typed.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    const typedFrom = Typed.from;
    const guardedFrom = {
        from(items, ...rest) { return apply(typedFrom, this, [listed(items), ...rest]); },
    }.from;
    Object.defineProperty(Typed, "from", { value: guardedFrom, writable: true, configurable: true });
    for (const name of ownKeys(global)) {
        const constructor = global[name];
        if (typeof constructor !== "function" || Object.getPrototypeOf(constructor) !== Typed) continue;
        const guarded = {
            [name]: function (...parts) {
                if (!new.target) throw new TypeError("constructor requires 'new'");
                parts[0] = listed(parts[0]);
                return construct(constructor, parts, new.target);
            },
        }[name];
        for (const own of ownKeys(constructor)) {
            Object.defineProperty(guarded, own, Object.getOwnPropertyDescriptor(constructor, own));
        }
        Object.setPrototypeOf(guarded, Typed);
        Object.defineProperty(constructor.prototype, "constructor", { value: guarded });
        Object.defineProperty(global, name, { value: guarded });
    }
    // Marks that stand on one letter are put in order, each before the ones it goes before.
    const MARKS_MAX = 1024;
    const exec = RegExp.prototype.exec, Pattern = RegExp;
    let manyMarks;
    const checkMarks = (text) => {
        if (text.length <= MARKS_MAX) return;
        manyMarks ??= new Pattern("[\\p{M}\\uFF9E\\uFF9F]{" + MARKS_MAX + "}", "u");
        if (apply(exec, manyMarks, [text]) !== null) throw new RangeError("the text has too many marks on one letter");
    };
    for (const name of ["localeCompare", "normalize"]) {
        const method = String.prototype[name];
        const guarded = {
            [name](...rest) {
                if (this === null || this === undefined) throw new TypeError("no text");
                const text = String(this);
                if (name === "localeCompare") checkMarks(rest[0] = String(rest[0]));
                checkMarks(text);
                return apply(method, text, rest);
            },
        }[name];
        Object.defineProperty(String.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    // Matches that cost nothing, one after the other: nothing is asked between them but a function of the script's.
    const MATCHED_ALONE_MAX = 1 << 16, sourceOf = getterOf(RegExp.prototype, "source");
    const isPattern = (object) => {
        try {
            apply(sourceOf, object, []);
            return true;
        } catch {
            return false;
        }
    };
    const askedExec = function (text) { return apply(exec, this, [text]); };
    for (const name of [Symbol.match, Symbol.replace]) {
        const method = RegExp.prototype[name];
        const guarded = {
            [name](text, ...rest) {
                text = String(text);
                const isLong = text.length > MATCHED_ALONE_MAX && isPattern(this);
                if (!isLong || this.exec !== exec) return apply(method, this, [text, ...rest]);
                const copy = new Pattern(apply(sourceOf, this, []), this.flags), before = this.lastIndex;
                copy.lastIndex = before;
                Object.defineProperty(copy, "exec", { value: askedExec });
                const made = apply(method, copy, [text, ...rest]);
                if (copy.lastIndex !== before) this.lastIndex = copy.lastIndex;
                return made;
            },
        }[name];
        Object.defineProperty(RegExp.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    // A search for a text compares at each place: for long texts in long texts that takes for ever, and nothing ends
    // it. So they are looked for by their beginnings, in one piece after the other.
    const COMPARED_MAX = 2 ** 28, HEAD_LENGTH = 256, PIECE_LENGTH = COMPARED_MAX / HEAD_LENGTH;
    const firstIn = String.prototype.indexOf, lastIn = String.prototype.lastIndexOf, cut = String.prototype.slice;
    const part = (text, start, end) => apply(cut, text, [start, end]);
    const find = (text, wanted, from) => {
        if (text.length * wanted.length <= COMPARED_MAX) return apply(firstIn, text, [wanted, from]);
        const head = part(wanted, 0, HEAD_LENGTH), last = text.length - wanted.length;
        for (let start = from; start <= last; start += PIECE_LENGTH) {
            const piece = part(text, start, Math.min(start + PIECE_LENGTH, last + 1) + head.length - 1);
            for (let at = -1; (at = apply(firstIn, piece, [head, at + 1])) >= 0;) {
                const place = start + at;
                if (part(text, place, place + wanted.length) === wanted) return place;
            }
        }
        return -1;
    };
    const findLast = (text, wanted, from) => {
        if (text.length * wanted.length <= COMPARED_MAX) return apply(lastIn, text, [wanted, from]);
        const head = part(wanted, 0, HEAD_LENGTH);
        for (let end = Math.min(from, text.length - wanted.length) + 1; end > 0; end -= PIECE_LENGTH) {
            const start = Math.max(end - PIECE_LENGTH, 0);
            const piece = part(text, start, end + head.length - 1);
            for (let at = piece.length; at >= 0 && (at = apply(lastIn, piece, [head, at])) >= 0; at--) {
                const place = start + at;
                if (part(text, place, place + wanted.length) === wanted) return place;
            }
        }
        return -1;
    };
    const places = (text, wanted, most) => {
        const found = [];
        for (let at = 0; found.length < most && (at = find(text, wanted, at)) >= 0; at += wanted.length) {
            found[found.length] = at;
        }
        return found;
    };
    const substituted = (form, text, wanted, at) => {
        const meant = { __proto__: null, "$": () => "$", "&": () => wanted, "`": () => part(text, 0, at) };
        meant["'"] = () => part(text, at + wanted.length);
        let made = "", start = 0;
        for (let sign; (sign = find(form, "$", start)) >= 0; start = sign + 2) {
            const name = form[sign + 1];
            made += part(form, start, sign) + (name in meant ? meant[name]() : part(form, sign, sign + 2));
        }
        return made + part(form, start);
    };
    const replaced = (text, wanted, change, most) => {
        const isCalled = typeof change === "function", form = isCalled ? "" : String(change);
        const found = places(text, wanted, most);
        let made = "", start = 0;
        for (let i = 0; i < found.length; i++) {
            const at = found[i];
            const own = isCalled ? String(change(wanted, at, text)) : substituted(form, text, wanted, at);
            made += part(text, start, at) + own;
            start = at + wanted.length;
        }
        return made + part(text, start);
    };
    const placeOf = (value) => { const number = Math.trunc(Number(value)); return number > 0 ? number : 0; };
    const searches = {
        includes: (text, wanted, from) => find(text, wanted, placeOf(from)) >= 0,
        indexOf: (text, wanted, from) => find(text, wanted, placeOf(from)),
        lastIndexOf: (text, wanted, from) => {
            const number = Number(from);
            return findLast(text, wanted, number !== number ? text.length : placeOf(number));
        },
        replace: (text, wanted, change) => replaced(text, wanted, change, 1),
        replaceAll: (text, wanted, change) => replaced(text, wanted, change, Infinity),
        split: (text, wanted, most) => {
            const max = most === undefined ? 2 ** 32 - 1 : most >>> 0;
            const found = places(text, wanted, max), parts = [];
            let start = 0;
            for (let i = 0; i < found.length; i++) {
                parts[i] = part(text, start, found[i]);
                start = found[i] + wanted.length;
            }
            if (parts.length < max) parts[parts.length] = part(text, start);
            return parts;
        },
    };
    const asked = { replace: Symbol.replace, replaceAll: Symbol.replace, split: Symbol.split };
    for (const name of ownKeys(searches)) {
        const method = String.prototype[name], search = searches[name];
        const guarded = {
            [name](wanted, ...rest) {
                if (this === null || this === undefined) throw new TypeError("no text to search in");
                // Regular expressions do it themselves, and are interrupted.
                const isAsked = asked[name] && wanted !== null && typeof wanted === "object";
                const own = isAsked ? wanted[asked[name]] : undefined;
                if (own !== undefined && own !== null) {
                    if (name === "replaceAll" && wanted instanceof RegExp && !wanted.global) {
                        throw new TypeError("replaceAll needs a regular expression with the flag g");
                    }
                    return apply(own, wanted, [this, ...rest]);
                }
                if (name === "includes" && wanted instanceof RegExp) throw new TypeError("no text to search for");
                const text = String(this);
                if (wanted === undefined && name === "split") return apply(method, text, [wanted, ...rest]);
                const sought = String(wanted);
                const isShort = text.length * sought.length <= COMPARED_MAX;
                return isShort ? apply(method, text, [sought, ...rest]) : search(text, sought, ...rest);
            },
        }[name];
        Object.defineProperty(String.prototype, name, { value: guarded, writable: true, configurable: true });
    }
    const raw = String.raw;
    String.raw = (strings, ...rest) => raw({ raw: asArray(strings.raw, false) }, ...rest);

    // The compiler does not bear that its heap is full: whatever compiles a text asks first whether there is room. So
    // `eval` finds global variables only, and no `this`; the engine would give others to none but its own.
    const evaluate = eval, construct = Reflect.construct, textFrom = String;
    const wellFormed = String.prototype.toWellFormed;
    const compiling = (text) => native.compiling(apply(wellFormed, text, []));
    const guardedEval = {
        eval(text) {
            if (typeof text !== "string") return text;
            compiling(text);
            try {
                return evaluate(text);
            } finally {
                native.compiled();
            }
        },
    }.eval;
    Object.defineProperty(global, "eval", { value: guardedEval, writable: true, configurable: true });
    const functions = [function () {}, function* () {}, async function () {}, async function* () {}];
    for (const sample of functions) {
        const prototype = Object.getPrototypeOf(sample), constructor = prototype.constructor;
        function guarded(...parts) {
            let text = "";
            for (let i = 0; i < parts.length; i++) {
                parts[i] = textFrom(parts[i]);
                text += parts[i] + "\n{";
            }
            compiling(text);
            try {
                return construct(constructor, parts, new.target || guarded);
            } finally {
                native.compiled();
            }
        }
        Object.defineProperty(guarded, "name", { value: constructor.name });
        Object.defineProperty(guarded, "length", { value: 1 });
        Object.defineProperty(guarded, "prototype", { value: prototype, writable: false });
        Object.setPrototypeOf(guarded, Object.getPrototypeOf(constructor));
        Object.defineProperty(prototype, "constructor", { value: guarded });
    }
    // The others inherit from the first one.
    const Guarded = functions[0].constructor;
    for (let i = 1; i < functions.length; i++) Object.setPrototypeOf(functions[i].constructor, Guarded);
    Object.defineProperty(global, "Function", { value: Guarded, writable: true, configurable: true });

    function ObjectId(text) {
        if (!new.target) return new ObjectId(text);
        if (text === undefined) text = native.objectId();
        if (text instanceof ObjectId) text = text.str;
        if (typeof text !== "string" || !/^[0-9a-fA-F]{24}$/.test(text)) {
            throw new TypeError("invalid object id: length");
        }
        this.str = text.toLowerCase();
    }
    typed(ObjectId, 7);
    ObjectId.prototype.toString = function () { return "ObjectId(" + quote(this.str) + ")"; };
    ObjectId.prototype.valueOf = function () { return this.str; };
    ObjectId.prototype.equals = function (other) { return other instanceof ObjectId && other.str === this.str; };
    ObjectId.prototype.getTimestamp = function () { return new Date(parseInt(this.str.slice(0, 8), 16) * 1000); };

    function NumberLong(value, top, bottom) {
        if (!new.target) return construct(NumberLong, arguments);
        if (arguments.length === 2 || arguments.length > 3) throw new TypeError("NumberLong needs 0, 1 or 3 arguments");
        if (value instanceof NumberLong) value = value[held];
        if (arguments.length === 3) {
            value = BigInt.asIntN(64, (BigInt(Math.trunc(top)) << 32n) + BigInt(Math.trunc(bottom)));
        }
        hide(this, held, native.long(value === undefined ? "0" : String(value)));
    }
    typed(NumberLong, 18);
    NumberLong.prototype.toNumber = NumberLong.prototype.valueOf = function () { return Number(this[held]); };
    NumberLong.prototype.toString = function () {
        const text = this[held];
        return Number.isSafeInteger(Number(text)) ? "NumberLong(" + text + ")" : "NumberLong(" + quote(text) + ")";
    };
    NumberLong.prototype.compare = function (other) {
        const [a, b] = [BigInt(this[held]), BigInt(new NumberLong(other)[held])];
        return a < b ? -1 : a > b ? 1 : 0;
    };
    Object.defineProperty(NumberLong.prototype, "floatApprox", { get() { return Number(this[held]); } });
    Object.defineProperty(NumberLong.prototype, "top", { get() { return Number(BigInt(this[held]) >> 32n); } });
    Object.defineProperty(NumberLong.prototype, "bottom", {
        get() { return Number(BigInt.asUintN(32, BigInt(this[held]))); },
    });

    function NumberInt(value) {
        if (!new.target) return new NumberInt(value);
        hide(this, held, value | 0);
    }
    typed(NumberInt, 16);
    NumberInt.prototype.toNumber = NumberInt.prototype.valueOf = function () { return this[held]; };
    NumberInt.prototype.toString = function () { return "NumberInt(" + this[held] + ")"; };

    function NumberDecimal(value) {
        if (!new.target) return new NumberDecimal(value);
        if (value instanceof NumberDecimal) value = value[held];
        hide(this, held, native.decimal(value === undefined ? "0" : String(value)));
    }
    typed(NumberDecimal, 19);
    NumberDecimal.prototype.toString = function () { return "NumberDecimal(" + quote(this[held]) + ")"; };

    function Timestamp(t, i) {
        if (!new.target) return new Timestamp(t, i);
        this.t = t === undefined ? 0 : Number(t);
        this.i = i === undefined ? 0 : Number(i);
        for (const part of [this.t, this.i]) {
            if (!(part >= 0 && part < 2 ** 32)) throw new RangeError("Timestamp parts must be in 0..4294967295");
        }
    }
    typed(Timestamp, 17);
    Timestamp.prototype.getTime = function () { return this.t; };
    Timestamp.prototype.getInc = function () { return this.i; };
    Timestamp.prototype.toString = function () { return "Timestamp(" + this.t + ", " + this.i + ")"; };

    function BinData(type, base64) {
        if (!new.target) return new BinData(type, base64);
        if (!Number.isInteger(type) || type < 0 || type > 255) {
            throw new RangeError("invalid BinData subtype -- range is 0..255");
        }
        hide(this, held, native.base64(String(base64)));
        this.type = type;
        this.len = native.bytes(this[held]);
    }
    typed(BinData, 5);
    BinData.prototype.subtype = function () { return this.type; };
    BinData.prototype.length = function () { return this.len; };
    BinData.prototype.base64 = function () { return this[held]; };
    BinData.prototype.hex = function () { return native.hexOfBase64(this[held]); };
    BinData.prototype.toString = function () {
        if (this.type === 4 && this.len === 16) {
            return 'UUID("' + this.hex().replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5") + '")';
        }
        return "BinData(" + this.type + "," + quote(this[held]) + ")";
    };
    const HexData = (type, hex) => new BinData(type, native.base64OfHex(String(hex)));
    const ofDigits = (type, name) => (hex) => {
        if (hex === undefined && type === 4) hex = native.uuid();
        const digits = String(hex).replace(/-/g, "");
        if (!/^[0-9a-fA-F]{32}$/.test(digits)) throw new TypeError(name + " string must have 32 hexadecimal digits");
        return HexData(type, digits);
    };

    // Values, and functions that give these values.
    const extreme = (name, kind) => {
        const value = { [name]: function () { return value; } }[name];
        hide(value, tag, kind);
        return hide(value, "toString", () => name);
    };
    const MinKey = extreme("MinKey", 255), MaxKey = extreme("MaxKey", 127);

    function Code(code, scope) {
        if (!new.target) return new Code(code, scope);
        this.code = String(code);
        if (scope !== undefined) this.scope = scope;
    }
    typed(Code, 13);
    Code.prototype.toString = function () { return "Code(" + quote(this.code) + ")"; };

    function DBPointer(ns, id) {
        if (!new.target) return new DBPointer(ns, id);
        this.ns = String(ns);
        this.id = id instanceof ObjectId ? id : new ObjectId(id);
    }
    typed(DBPointer, 12);
    DBPointer.prototype.toString = function () { return "DBPointer(" + quote(this.ns) + ", " + this.id + ")"; };

    // To BSON it is a document like any other.
    function DBRef(ns, id, db) {
        if (!new.target) return new DBRef(ns, id, db);
        this.$ref = ns;
        this.$id = id;
        if (db !== undefined) this.$db = db;
    }
    DBRef.prototype.toString = function () { return "DBRef(" + quote(this.$ref) + ", " + tojson(this.$id) + ")"; };

    typed(Date, 9);
    typed(RegExp, 11);

    function ISODate(text) {
        if (text === undefined) return new Date();
        const form = /^(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.(\d+))?)?)?(Z|[+-]\d\d:?\d\d)?)?$/;
        const parts = form.exec(String(text));
        if (!parts) throw new TypeError("invalid ISO date: " + text);
        const [, year, month, day, hours, minutes, seconds, fraction, zone] = parts;
        const part = (digits) => Number(digits || 0);
        const ms = part((fraction || "").padEnd(3, "0").slice(0, 3));
        const time = new Date(0);
        time.setUTCFullYear(part(year), part(month) - 1, part(day));
        time.setUTCHours(part(hours), part(minutes), part(seconds), ms);
        // Parts that no date has would be carried to the next ones.
        if (time.getUTCMonth() !== part(month) - 1 || time.getUTCDate() !== part(day) ||
            time.getUTCHours() !== part(hours) || time.getUTCMinutes() !== part(minutes) ||
            time.getUTCSeconds() !== part(seconds)) throw new TypeError("invalid ISO date: " + text);
        if (!zone || zone === "Z") return time;
        const offset = part(zone.slice(1, 3)) * 60 + part(zone.slice(-2));
        return new Date(time.getTime() - (zone[0] === "-" ? -offset : offset) * 60000);
    }

    const dateText = (date) => {
        if (isNaN(date)) return 'ISODate("Invalid Date")';
        const fraction = date.getUTCMilliseconds();
        return 'ISODate("' + pad(date.getUTCFullYear(), 4) + "-" + pad(date.getUTCMonth() + 1, 2) + "-" +
            pad(date.getUTCDate(), 2) + "T" + pad(date.getUTCHours(), 2) + ":" + pad(date.getUTCMinutes(), 2) + ":" +
            pad(date.getUTCSeconds(), 2) + (fraction ? "." + pad(fraction, 3) : "") + 'Z")';
    };
    const lines = (open, items, close, indent) => {
        if (items.length === 0) return open + " " + close;
        const inner = "\n" + indent + "\t";
        return open + inner + items.join("," + inner) + "\n" + indent + close;
    };
    const TOJSON_DEPTH_MAX = 100;
    const render = (value, indent, depth) => {
        if (depth > TOJSON_DEPTH_MAX) return "[Object]";
        if (value === MinKey) return '{ "$minKey" : 1 }';
        if (value === MaxKey) return '{ "$maxKey" : 1 }';
        switch (typeof value) {
            case "string": return quote(value);
            case "undefined": return "undefined";
            case "object": break;
            default: return String(value);
        }
        if (value === null) return "null";
        if (value instanceof Date) return dateText(value);
        if (value instanceof RegExp) return String(value);
        if (value[tag] !== undefined) return String(value);
        const inner = indent + "\t";
        if (isArray(value)) {
            return lines("[", value.map((item) => render(item, inner, depth + 1)), "]", indent);
        }
        const fields = Object.keys(value).map((name) => quote(name) + " : " + render(value[name], inner, depth + 1));
        return lines("{", fields, "}", indent);
    };
    const flat = (text) => text.replace(/[\t\r\n]+/g, " ");
    const LINE_WIDTH = 80;
    function tojson(value, indent, nolint) {
        const text = render(value, indent || "", 0);
        return nolint || (nolint === undefined && !indent && text.length < LINE_WIDTH) ? flat(text) : text;
    }
    const tojsononeline = (value) => flat(render(value, "", 0));

    const doassert = (message) => {
        throw new Error(typeof message === "string" ? message : tojson(message));
    };
    const assert = (condition, message) => {
        if (!condition) doassert("assert failed" + (message === undefined ? "" : " : " + message));
    };
    const numbers = (values) => values.map(Number);
    const sum = (values) => numbers(values).reduce((total, value) => total + value, 0);
    const avg = (values) => (values.length === 0 ? null : sum(values) / values.length);
    Array.sum = (values) => (values.length === 0 ? null : sum(values));
    Array.avg = avg;
    Array.stdDev = (values) => {
        const mean = avg(values);
        return Math.sqrt(avg(numbers(values).map((value) => (value - mean) ** 2)));
    };
    Array.contains = (values, wanted) => values.some((value) => value == wanted);
    Array.unique = (values) => [...new Set(values)];
    Array.tojson = tojson;

    const now = Date.now;
    const offered = {
        ObjectId, NumberLong, NumberInt, NumberDecimal, Timestamp, BinData, HexData, MinKey, MaxKey, Code, DBPointer,
        DBRef, ISODate, UUID: ofDigits(4, "UUID"), MD5: ofDigits(5, "MD5"),
        tojson, tojsononeline, tojsonObject: tojson, assert, doassert,
        hex_md5: (text) => native.md5(String(text)),
        isNumber: (value) => typeof value === "number",
        isString: (value) => typeof value === "string",
        isObject: (value) => typeof value === "object",
        sleep: (ms) => { for (const end = now() + Number(ms); now() < end;) native.pause(end - now()); },
        print() {}, printjson() {}, printjsononeline() {}, gc() {},
        emit: native.emit,
        args: [],
    };
    for (const name of Object.keys(offered)) {
        Object.defineProperty(global, name, { value: offered[name], writable: true, configurable: true });
    }

    const timeOf = Date.prototype.getTime;
    const flagsOf = Object.getOwnPropertyDescriptor(RegExp.prototype, "flags").get;
    const textOf = Function.prototype.toString;
    const startOf = String.prototype.slice;
    const propertyOf = Object.getOwnPropertyDescriptor, prototypeOf = Object.getPrototypeOf;
    const isExtensible = Object.isExtensible;
    const known = Map.prototype.get, learn = Map.prototype.set, sizeOf = propertyOf(Map.prototype, "size").get;
    const isDate = (object) => { try { return textFrom(apply(timeOf, object, [])); } catch { return ""; } };
    // All that can be reached from the globals by properties, as a digest: scopes have the same one until a script
    // leaves something in one of them. Of more properties than `most` there is none. The variable `obj` is the host's,
    // and so are the numbers of originals.
    const state = (most, ...functions) => {
        const numbers = new Map(), left = { first: 0, length: 0 };
        let digest = "", text = "", properties = 0;
        // There may be one more: the variable.
        const isMore = () => properties > most + 1;
        const note = (value) => {
            if (value === null || (typeof value !== "object" && typeof value !== "function")) {
                return typeof value + " " + textFrom(value) + (Object.is(value, -0) ? "-" : "");
            }
            let number = apply(known, numbers, [value]);
            if (number === undefined) {
                number = apply(sizeOf, numbers, []);
                apply(learn, numbers, [value, number]);
                left[left.length++] = value;
            }
            return "#" + number;
        };
        const look = (object) => {
            // No scope begins with any of these, and each element of them would be a property.
            if (isView(object) || (isArray(object) && object.length > most)) properties = Infinity;
            if (isMore()) return;
            text += "\n" + (typeof object === "function" ? apply(textOf, object, []) : isDate(object));
            text += note(prototypeOf(object)) + isExtensible(object);
            const names = ownKeys(object);
            properties += names.length;
            for (let i = 0; i < names.length; i++) {
                if ((object === global && names[i] === "obj") || names[i] === origin) continue;
                const { value, get, set, writable, enumerable, configurable } = propertyOf(object, names[i]);
                text += "\n" + textFrom(names[i]) + ":" + note(value) + note(get) + note(set);
                text += " " + writable + enumerable + configurable;
            }
            if (text.length > 1 << 16) {
                digest = native.md5(digest + text);
                text = "";
            }
        };
        note(global);
        while (left.first < left.length) {
            const object = left[left.first];
            delete left[left.first++];
            look(object);
            if (isMore()) return { digest: "", properties };
        }
        // Compiled functions are reached from nowhere else; what they have by themselves is nothing to note.
        const own = { __proto__: null, length: 1, name: 1, prototype: 1, arguments: 1, caller: 1 };
        for (let i = 0; i < functions.length; i++) {
            const names = ownKeys(functions[i]);
            for (let k = 0; k < names.length; k++) if (!own[names[k]]) return { digest: "", properties };
            const prototype = propertyOf(functions[i], "prototype");
            if (prototype && prototype.value && ownKeys(prototype.value).length > 1) {
                return { digest: "", properties };
            }
        }
        return { digest: native.md5(digest + text), properties };
    };
    return {
        state,
        // As much of a text as an error tells.
        told: (value, max) => {
            const text = textFrom(value);
            return text.length > max ? apply(startOf, text, [0, max]) : text;
        },
        tag, held, origin,
        objectId: (text) => { const id = Object.create(ObjectId.prototype); id.str = text; return id; },
        long: (text) => hide(Object.create(NumberLong.prototype), held, text),
        decimal: (text) => hide(Object.create(NumberDecimal.prototype), held, text),
        timestamp: (t, i) => new Timestamp(t, i),
        binary: (type, base64) => new BinData(type, base64),
        date: (ms) => new Date(ms),
        // One that JavaScript does not have is kept as it is until a script sets it.
        farDate: (text) => hide(new Date(NaN), held, text),
        // A pattern that JavaScript has not is kept as it is.
        regex: (pattern, flags) => {
            let regex;
            try {
                regex = new RegExp(pattern, flags);
            } catch {
                regex = Object.create(RegExp.prototype);
            }
            return hide(regex, held, [pattern, flags]);
        },
        code: (text, scope) => new Code(text, scope),
        pointer: (ns, id) => new DBPointer(ns, id),
        minKey: () => MinKey,
        maxKey: () => MaxKey,
        timeOf: (date) => apply(timeOf, date, []),
        regexParts: (regex) => regex[held] || [apply(sourceOf, regex, []), apply(flagsOf, regex, [])],
        functionText: (f) => apply(textOf, f, []),
        wellFormed: (text) => apply(wellFormed, text, []),
    };
})
