package executor

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/text"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

// Variables of the process that TestServeQueuesKilled kills.
const (
	killedPlan   = "INFERPLAN_KILLED_PLAN"
	killedServer = "INFERPLAN_KILLED_SERVER"
	killedHTTP   = "INFERPLAN_KILLED_HTTP"
)

// TestKilledProcess is that process: plan serve of a plan of queues.
func TestKilledProcess(t *testing.T) {
	plan := os.Getenv(killedPlan)
	if plan == "" {
		t.Skip("it is run by TestServeQueuesKilled")
	}
	o := ServeOptions{Plan: plan, HTTP: os.Getenv(killedHTTP), GRPC: AddressOff, Metrics: AddressOff}
	o.Servers = []text.InstanceServer{{URL: os.Getenv(killedServer)}}
	o.Queue.Open = func() (durable.Store, error) {
		return bolt.Open(filepath.Join(filepath.Dir(plan), "requests.db"), bolt.Options{})
	}
	_, err := Serve(t.Context(), o)
	t.Fatal(err) // nothing ends it but a kill
}

// startServing starts the process and waits until it answers.
func startServing(t *testing.T, plan, server, address string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), killedPlan+"="+plan, killedServer+"="+server, killedHTTP+"="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + address + "/health"); err == nil {
			resp.Body.Close()
			return cmd
		}
	}
	cmd.Process.Kill()
	t.Fatal("the process does not answer")
	return nil
}

// The process is killed with requests waiting, running and answered. Clients that come
// again with their key get the text of an undisturbed run, and nothing is served twice
// that was answered once.
func TestServeQueuesKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	plan := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(plan, completePlan(queuePlan(1, 4, time.Minute, "a"))); err != nil {
		t.Fatal(err)
	}
	f, err := fake.Start(fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	const n, tokens, kills = 24, 60, 3
	cmd := startServing(t, plan, f.URL(), address)
	var wg sync.WaitGroup
	answers := make([]string, n)
	for i := range n {
		wg.Go(func() { answers[i] = insist(address, i, tokens) })
	}
	for range kills {
		time.Sleep(150 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		cmd = startServing(t, plan, f.URL(), address)
	}
	wg.Wait()
	before := f.Counts().Completions
	for i := range n {
		if want := fake.Text("a", fmt.Sprint("prompt ", i), tokens); answers[i] != want {
			t.Errorf("request %d: %q, expected %q", i, answers[i], want)
		}
		if again := insist(address, i, tokens); again != answers[i] {
			t.Errorf("request %d: asked again, it is %q", i, again)
		}
	}
	if after := f.Counts().Completions; after != before {
		t.Errorf("%d requests were served again after their answer", after-before)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// insist sends a request with its key until there is an answer.
func insist(address string, i, tokens int) string {
	for until := time.Now().Add(40 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":"a","prompt":"prompt %d","max_tokens":%d}`, i, tokens)))
		if err != nil {
			return err.Error()
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprint("key-", i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		var body map[string]any
		err = json.NewDecoder(resp.Body).Decode(&body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return textOf(body)
		}
	}
	return "no answer"
}
