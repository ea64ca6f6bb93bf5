package inferplan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sizeLimit is a largest number of bytes for the documents that its patterns name.
type sizeLimit struct {
	patterns []string
	except   []string // documents that programs write, or that another limit has
	each     int      // bytes of one document; 0 if any is allowed
	total    int      // bytes of all together; 0 if any is allowed
}

// sizeLimits keep documents that people write short enough to be read.
var sizeLimits = []sizeLimit{
	{patterns: []string{"docs/benchmarks.md"}, each: 12_000},
	{patterns: []string{"docs/benchmarks/*.md"}, each: 20_000},
	{patterns: []string{"docs/benchmarks.md", "docs/benchmarks/*.md"}, total: 120_000},
	{patterns: []string{"README.md", "docs/*.md", "docs/howto/*.md", "docs/methods/*.md", "docs/tutorials/*.md"}, except: []string{"docs/benchmarks.md", "docs/not-run.md"}, total: 180_000},
	{patterns: []string{"docs/methods/*.md"}, each: 15_000, total: 66_000},
	{patterns: []string{"docs/howto/*.md"}, except: []string{"docs/howto/gpu.md"}, each: 5_000},
	{patterns: []string{"docs/howto/gpu.md"}, each: 9_000},
	{patterns: []string{"docs/documents.md"}, each: 12_000},
	{patterns: []string{"docs/architecture.md"}, each: 13_000},
	{patterns: []string{"docs/glossary.md", "docs/dependencies.md"}, each: 6_000},
}

// longDocuments lists the documents that are longer than a limit allows. bytesByPath has the documents that match the limit's patterns.
func longDocuments(limit sizeLimit, bytesByPath map[string]int) (out []string) {
	total := 0
	for path, size := range bytesByPath {
		if slices.Contains(limit.except, path) {
			continue
		}
		total += size
		if limit.each > 0 && size > limit.each {
			out = append(out, fmt.Sprintf("%s: %d bytes, expected at most %d", path, size, limit.each))
		}
	}
	if limit.total > 0 && total > limit.total {
		out = append(out, fmt.Sprintf("%s: %d bytes together, expected at most %d", strings.Join(limit.patterns, ", "), total, limit.total))
	}
	return out
}

func TestDocumentsAreShort(t *testing.T) {
	for _, limit := range sizeLimits {
		bytesByPath := map[string]int{}
		for _, pattern := range limit.patterns {
			paths, err := filepath.Glob(pattern)
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s: %d documents, %v", pattern, len(paths), err)
			}
			for _, path := range paths {
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				bytesByPath[filepath.ToSlash(path)] = int(info.Size())
			}
		}
		for _, v := range longDocuments(limit, bytesByPath) {
			t.Error(v)
		}
	}
}

func TestLongDocumentsAreFound(t *testing.T) {
	documents := map[string]int{"a.md": 5, "b.md": 7}
	for limit, want := range map[[2]int]int{{7, 12}: 0, {6, 12}: 1, {4, 11}: 3, {0, 0}: 0, {0, 11}: 1} {
		if found := longDocuments(sizeLimit{patterns: []string{"*.md"}, each: limit[0], total: limit[1]}, documents); len(found) != want {
			t.Errorf("at most %d each and %d together: %q, expected %d", limit[0], limit[1], found, want)
		}
	}
	if found := longDocuments(sizeLimit{patterns: []string{"*.md"}, except: []string{"b.md"}, each: 6, total: 6}, documents); found != nil {
		t.Errorf("b.md is an exception: %q", found)
	}
}
