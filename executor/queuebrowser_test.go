package executor

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

// The page of a server of queues in a real browser: it shows instances and groups, follows what
// happens without being loaded again, and has no errors. make bench NAME=page sets the browser up
// and names its folder.
func TestServerPageInBrowser(t *testing.T) {
	dir := os.Getenv("INFERPLAN_CHROMIUM")
	if dir == "" {
		t.Skip("INFERPLAN_CHROMIUM is not set: make bench NAME=page runs this")
	}
	plan := completePlan(queuePlan(2, 1, time.Minute, "a"))
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(path, plan); err != nil {
		t.Fatal(err)
	}
	var servers []*fake.Server
	for range 2 {
		s, err := fake.Start(fake.Options{Models: []string{"a"}, Slots: 1, Token: 25 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		servers = append(servers, s)
	}
	s := serveText(t, path, filepath.Join(t.TempDir(), "store"), servers...)
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", "check.mjs", s.metrics+"/")
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		switch lines.Text() {
		case "idle":
			for i := range 16 {
				go func() { // the page shows how they end
					resp, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"a","prompt":"%d","max_tokens":20}`, i)))
					if err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}()
			}
		case "busy":
			servers[1].Stop()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}
