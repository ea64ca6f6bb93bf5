package outcomes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with more requests than fit into memory is refused.
func TestRowsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outcomes.csv")
	if err := os.WriteFile(path, []byte("t_s,model,class,outcome,latency_us,reason\n1,a,,in_time,1,\n2,a,,in_time,1,\n3,a,,in_time,1,\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, err := readFile(path, 3); err != nil || len(list) != 3 || list[2].Model != "a" {
		t.Errorf("found %v and %v", list, err)
	}
	if _, err := readFile(path, 2); err == nil || !strings.Contains(err.Error(), "outcomes.csv:4:1: found more than 2 requests") {
		t.Errorf("found %v", err)
	}
}
