package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"inferplan/formats"
)

// Imports into one profile at once lose nothing of each other.
func TestImportsAtOnce(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "profile.json")
	const n = 8
	var wg sync.WaitGroup
	for i := range n {
		csv := filepath.Join(dir, fmt.Sprintf("%d.csv", i))
		text := "sample_id,model,correct,certainty\n"
		for sample := range 200 {
			text += fmt.Sprintf("%d,m%d,1,0.5\n%d,n%d,0,0.25\n", sample, i, sample, i)
		}
		if err := os.WriteFile(csv, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			var said bytes.Buffer
			if code := executeCommand(context.Background(), []string{"import", "records", csv, "-o", out}, &said, &said); code != exitDone {
				t.Errorf("%d: code %d: %s", i, code, &said)
			}
		})
	}
	wg.Wait()
	p, err := formats.ReadProfile(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Records) != n {
		t.Errorf("%d of %d imports are in the profile", len(p.Records), n)
	}
}
