package completions

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/executor/httplimit"
)

// TestOpenAIClients runs the checks of third_party/openai against the front end. make
// openai sets the clients up and names their folder.
func TestOpenAIClients(t *testing.T) {
	dir := os.Getenv("INFERPLAN_OPENAI")
	if dir == "" {
		t.Skip("INFERPLAN_OPENAI is not set: make bench NAME=openai runs this")
	}
	f := &fake{every: time.Millisecond, evict: 5}
	f.admit = func(r *Request) error {
		if strings.Contains(string(r.Body), "refuse") {
			return &Refusal{Reason: "overload", Msg: "too much waits", RetryAfter: 1500 * time.Millisecond}
		}
		return nil
	}
	f.end = func(r *Request) error {
		if strings.Contains(string(r.Body), "too long") {
			return &ServerError{Status: 400, Type: "invalid_request_error", Code: "context_length_exceeded", Param: "prompt", Msg: "the prompt is longer than the context"}
		}
		return nil
	}
	const key = "a-token-for-the-clients"
	r := start(t, f, Options{Door: &httplimit.Door{Keys: ring(t, httplimit.Key{Token: key, Name: "clients"}), Log: quiet}})
	npm := exec.CommandContext(t.Context(), "node", "check.mjs", r.http.URL+"/v1", key)
	npm.Dir = dir
	goClient := exec.CommandContext(t.Context(), "go", "run", ".", r.http.URL+"/v1", key)
	goClient.Dir = filepath.Join(dir, "go")
	for _, cmd := range []*exec.Cmd{npm, goClient} {
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Errorf("%v: %v", cmd.Args, err)
		}
	}
	settles(t, "something is left", r.idle)
}
