package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Where stderr is no terminal, long work writes a line for each phase, at most one in ten seconds, and short work none.
func TestProgressLines(t *testing.T) {
	type step struct {
		second int
		done   int64
		phase  string
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  []string
	}{
		{"short work", []step{{0, 0, "templates"}, {3, 40, "rounding"}, {9, 90, "certifying"}}, nil},
		{"one phase", []step{{1, 10, "search"}, {10, 30, "search"}, {20, 60, "search"}, {600, 90, "search"}}, []string{"search: 30 % after 10s"}},
		{"phases", []step{{12, 10, "a"}, {13, 20, "b"}, {21, 30, "b"}, {22, 40, "b"}, {23, 50, "c"}, {40, 60, "c"}, {50, 70, "a"}}, []string{"a: 10 % after 12s", "b: 40 % after 22s", "c: 60 % after 40s"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			now := time.Unix(0, 0)
			var lines []string
			l := newProgressLines(100, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }, func() time.Time { return now })
			for _, s := range c.steps {
				now = time.Unix(int64(s.second), 0)
				l.setProgress(s.done, s.phase)
			}
			if !slices.Equal(lines, c.want) {
				t.Errorf("found %q, expected %q", lines, c.want)
			}
		})
	}
}
