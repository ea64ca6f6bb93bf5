package samples

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"
)

func TestPromptsAreReadPlainOrGzipped(t *testing.T) {
	const text = "label,prompt\nA,\"2+2=?\nA) 4 B) 5\"\n B ,x\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text))
	z.Close()
	for name, in := range map[string]string{"plain": text, "gzip": packed.String()} {
		p, err := ReadPrompts(strings.NewReader(in), "q.csv")
		if err != nil || !slices.Equal(p.Labels, []string{"A", "B"}) || !slices.Equal(p.Texts, []string{"2+2=?\nA) 4 B) 5", "x"}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for in, want := range map[string]string{
		"":                        "an empty file",
		"label,prompt\n":          "no row",
		"prompt,label\n":          "q.csv:1",
		"label,prompt\nA,x\n,y\n": "q.csv:3:1: label",
		"label,prompt\nA,  \n":    "q.csv:2:3: prompt",
		"label,prompt\nA\n":       "another number of columns",
		"label,prompt\nA," + strings.Repeat("x", maxPrompt+1): "at most",
		"\x1f\x8b": "q.csv: a gzip file",
	} {
		if _, err := ReadPrompts(strings.NewReader(in), "q.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, expected %q", in, err, want)
		}
	}
}

func FuzzPrompts(f *testing.F) {
	f.Add([]byte("label,prompt\nA,\"x\ny\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPrompts(bytes.NewReader(data), "q.csv")
		if err == nil && (len(p.Labels) == 0 || len(p.Labels) != len(p.Texts) || slices.Contains(p.Labels, "")) {
			t.Fatalf("%+v", p)
		}
	})
}
