package formats

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unicode/utf8"
)

// seedFiles adds the documents of testdata with the given endings.
func seedFiles(f *testing.F, endings ...string) {
	f.Helper()
	for _, dir := range []string{"../testdata/compat", "../testdata/formats/good", "../testdata/formats/bad"} {
		for _, ending := range endings {
			files, err := filepath.Glob(dir + "/*" + ending)
			if err != nil {
				f.Fatal(err)
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(data)
			}
		}
	}
}

// roundTrip decodes arbitrary bytes: either findings with positions, or a
// document that survives writing and reading.
func roundTrip(t *testing.T, data []byte, name string) {
	kind, doc, err := Decode(data, name)
	if err != nil {
		list := Findings(err)
		if len(list) == 0 {
			t.Fatalf("%T is no finding: %v", err, err)
		}
		for _, e := range list {
			if e.Line < 1 && len(list) < maxFindings {
				t.Fatalf("no position: %v", e)
			}
			if !utf8.ValidString(e.Error()) {
				t.Fatalf("the message is not UTF-8: %q", e.Error())
			}
		}
		return
	}
	written, err := marshalValid(doc)
	if err != nil {
		t.Fatalf("a valid %s cannot be written: %v", kind, err)
	}
	kind2, again, err := Decode(written, "again.json")
	if err != nil || kind2 != kind {
		t.Fatalf("what was written does not read as a %s: %v\n%s", kind, err, written)
	}
	if !reflect.DeepEqual(doc, again) {
		t.Fatalf("reads differently after writing:\n%+v\n%+v\n%s", doc, again, written)
	}
	rewritten, err := marshalValid(again)
	if err != nil || !bytes.Equal(written, rewritten) {
		t.Fatalf("writes differently the second time: %v", err)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	seedFiles(f, ".json")
	f.Fuzz(func(t *testing.T, data []byte) { roundTrip(t, data, "fuzz.json") })
}

func FuzzDecodeYAML(f *testing.F) {
	seedFiles(f, ".yaml", ".json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 1<<14 {
			roundTrip(t, data, "fuzz.yaml")
		}
	})
}

// whole writes a node and all below it with their positions.
func whole(n *node) (out []any) {
	text := n.text
	if n.kind >= listNode {
		text = ""
	}
	out = append(out, n.kind, n.pos, text, string(appendCompact(nil, n)))
	n.each(func(k *key, item *node) bool {
		out = append(out, *k, whole(item))
		return true
	})
	return out
}

// FuzzParseJSON holds the parser against encoding/json: both accept the same
// texts, except for what ours is stricter about, and mean the same by them.
func FuzzParseJSON(f *testing.F) {
	seedFiles(f, ".json")
	f.Add([]byte(`{"a":"\ud83d\ude00\u0041\n","b":[1,-0.5e+3,true,null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, e := parseJSON(&source{text: string(data)})
		lazy, lazyErr := scanJSON(&source{text: string(data)})
		if !reflect.DeepEqual(e, lazyErr) {
			t.Fatalf("%q: the tree says %v, the scan %v", data, e, lazyErr)
		}
		if e == nil && !reflect.DeepEqual(whole(&lazy), whole(&n)) {
			t.Fatalf("%q: the tree reads %+v, the scan %+v", data, whole(&n), whole(&lazy))
		}
		if e != nil {
			return // stricter: duplicate keys, lone surrogates, depth, UTF-8
		}
		if !json.Valid(data) {
			t.Fatalf("accepted, but is no JSON: %q", data)
		}
		var want, got any
		if json.Unmarshal(data, &want) != nil {
			return // numbers beyond float64 are JSON too
		}
		if err := json.Unmarshal(appendCompact(nil, &n), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q reads as %#v, want %#v (%v)", data, got, want, err)
		}
		pretty := appendPretty(nil, &n, 0, 0)
		if err := json.Unmarshal(pretty, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is laid out as %s (%v)", data, pretty, err)
		}
	})
}
