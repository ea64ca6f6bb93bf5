package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Every sample of another tool is recognised as one tool's file alone, and our own files as none.
func TestSamplesAreRecognized(t *testing.T) {
	samples, err := filepath.Glob("../*/testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) < 18 {
		t.Fatalf("only %d samples: the search is broken", len(samples))
	}
	for _, path := range samples {
		head, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, i := range All() {
			if i.Recognize != nil && i.Recognize(head) != "" {
				names[i.Recognize(head)] = true
			}
		}
		name, verbs := Recognize(path)
		if len(names) != 1 || !names[name] || len(verbs) == 0 {
			t.Errorf("%s is recognised as %v: %q, read by %v", path, names, name, verbs)
		}
	}
	dir := t.TempDir()
	for k, text := range []string{"", "t_us,model,prompt_tokens,output_tokens\n0,m,1,1\n", `{"format": "inferplan.profile/v1"}`, "model,gpu,vgpu_denominator,block,batch,latency_us\n", "second,requests\n1,2\n"} {
		path := filepath.Join(dir, fmt.Sprint(k))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if name, verbs := Recognize(path); name != "" || verbs != nil {
			t.Errorf("%q is recognised as %s", text, name)
		}
	}
}
