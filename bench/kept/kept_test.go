package kept_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/bench/kept"
)

// open returns what a file holds.
func open(t *testing.T, path string, fresh bool) (*kept.Lines, []string) {
	t.Helper()
	var got []string
	l, err := kept.Open(path, fresh, func(line []byte) error {
		got = append(got, strings.TrimSpace(string(line)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, got
}

// What was added is there again, and what an interruption cut off is not, while
// others go on adding.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lines.jsonl")
	a, got := open(t, path, false)
	if len(got) != 0 {
		t.Errorf("a new file holds %q", got)
	}
	if err := a.Add(map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"b":`)
	f.Close()
	b, got := open(t, path, false)
	if !slices.Equal(got, []string{`{"a":1}`}) {
		t.Errorf("after an interruption: %q", got)
	}
	for _, l := range []*kept.Lines{a, b, nil} {
		if err := l.Add(2); err != nil {
			t.Fatal(err)
		}
	}
	if _, got := open(t, path, false); !slices.Equal(got, []string{`{"a":1}`, "2", "2"}) {
		t.Errorf("then: %q", got)
	}
	no := errors.New("no")
	if _, err := kept.Open(path, false, func([]byte) error { return no }); !errors.Is(err, no) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("refused: %v", err)
	}
	if _, got := open(t, path, true); len(got) != 0 {
		t.Errorf("afresh: %q", got)
	}
	if err := (*kept.Lines)(nil).Close(); err != nil {
		t.Error(err)
	}
}

func TestProgram(t *testing.T) {
	a, err := kept.Program()
	b, again := kept.Program()
	if err != nil || again != nil || len(a) != 20 || a != b {
		t.Errorf("%q, %v; %q, %v", a, err, b, again)
	}
}
