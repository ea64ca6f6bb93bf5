package formats

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unicode/utf8"

	"inferplan/formats/document"
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
		list := document.Findings(err)
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
