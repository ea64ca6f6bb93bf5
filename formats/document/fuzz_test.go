package document

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// whole writes a node and all below it with their positions.
func whole(n *node) (out []any) {
	text := n.text
	if n.kind >= listNode {
		text = ""
	}
	out = append(out, n.kind, n.pos, text, string(appendCompact(nil, n)))
	n.eachChild(func(k *key, item *node) bool {
		out = append(out, *k, whole(item))
		return true
	})
	return out
}

// FuzzParseJSON holds the parser against encoding/json: both accept the same
// texts, except for what ours is stricter about, and mean the same by them.
func FuzzParseJSON(f *testing.F) {
	for _, dir := range []string{"compat", "formats/good", "formats/bad"} {
		files, err := filepath.Glob("../../testdata/" + dir + "/*.json")
		if err != nil || len(files) == 0 {
			f.Fatalf("no files in %s: %v", dir, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(`{"a":"\ud83d\ude00\u0041\n","b":[1,-0.5e+3,true,null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		scanned, e := scanJSON(&source{text: string(data)})
		if e != nil {
			return // stricter: duplicate keys, lone surrogates, depth, UTF-8
		}
		n := scanned.parsed()
		if !reflect.DeepEqual(whole(&scanned), whole(&n)) {
			t.Fatalf("%q: the tree reads %+v, the scan %+v", data, whole(&n), whole(&scanned))
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
