package completions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/executor/durable/bolt"
)

// child is the variable that makes this program a front end on the store that it names.
// It tells its address on its standard output.
const child = "INFERPLAN_FRONT_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(child); path != "" {
		fmt.Fprintln(os.Stderr, serveChild(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func serveChild(path string) error {
	store, err := bolt.Open(path, bolt.Options{Log: quiet})
	if err != nil {
		return err
	}
	front, err := New(Options{Store: store, Server: &fake{every: time.Millisecond, evict: 7}, TextStoreInterval: 10 * time.Millisecond, Log: quiet})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", os.Getenv("ADDRESS"))
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return front.Serve(l)
}

// victim is a front end in a process of its own, which is killed and started again.
type victim struct {
	t       *testing.T
	path    string
	mu      sync.Mutex
	cmd     *exec.Cmd
	address string
}

func (v *victim) start() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+v.path, "ADDRESS=127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		v.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		v.t.Errorf("the front end did not start: %v", err)
	}
	v.mu.Lock()
	v.cmd, v.address = cmd, strings.TrimSpace(line)
	v.mu.Unlock()
}

func (v *victim) kill() {
	v.cmd.Process.Kill()
	v.cmd.Wait()
}

func (v *victim) url() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return "http://" + v.address
}

// outcome is what a client has seen of a request.
type outcome struct {
	ids    map[string]bool
	text   string
	starts int // how often it was sent
}

// insist sends a request until it is answered. Every second one is a stream.
func (v *victim) insist(client *http.Client, i int) (o outcome, want string) {
	o.ids = map[string]bool{}
	stream := i%2 == 1
	body, want := prompt(fmt.Sprint("request ", i), 20+i%20, "")
	if stream {
		body = body[:len(body)-1] + `,"stream":true}`
	}
	for o.text == "" {
		o.starts++
		req, err := http.NewRequestWithContext(v.t.Context(), "POST", v.url()+"/v1/completions", strings.NewReader(body))
		if err != nil {
			v.t.Error(err)
			return o, want
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprint("key-", i))
		if err := o.try(client, req, stream); err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return o, want
}

func (o *outcome) try(client *http.Client, req *http.Request, stream bool) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("X-Request-Id"); id != "" {
		o.ids[id] = true
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		return fmt.Errorf("%d %s, %w", resp.StatusCode, text, err)
	}
	got := ""
	if !stream {
		var c completion
		if err := json.Unmarshal(text, &c); err != nil {
			return err
		}
		got = *c.Choices[0].Text
	} else {
		if !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
			return errors.New("the stream broke off")
		}
		for part := range strings.SplitSeq(string(text), "\n\n") {
			var c completion
			if data, ok := strings.CutPrefix(part, "data: "); ok && json.Unmarshal([]byte(data), &c) == nil {
				got += *c.Choices[0].Text
			}
		}
	}
	o.text = got
	return nil
}

// The front end is killed again and again. Every request is answered, with the text that
// it would have had, and is accepted once.
func TestFrontEndIsKilled(t *testing.T) {
	requests, kills := 300, 6
	if os.Getenv("INFERPLAN_LONG") != "" {
		requests, kills = 10_000, 100
	}
	v := &victim{t: t, path: filepath.Join(t.TempDir(), "store")}
	v.start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	outcomes, wants := make([]outcome, requests), make([]string, requests)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := range next {
				outcomes[i], wants[i] = v.insist(client, i)
			}
		})
	}
	// The kills are spread over the requests: each comes at a random one.
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	at := map[int]int{}
	for range kills {
		at[r.IntN(requests)]++
	}
	for i := range requests {
		next <- i
		for range at[i] {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			v.kill()
			v.start()
		}
	}
	close(next)
	wg.Wait()
	again, ids := 0, map[string]bool{}
	for i, o := range outcomes {
		if o.text != wants[i] {
			t.Errorf("request %d (seed %d): %q, expected %q", i, seed, o.text, wants[i])
		}
		if len(o.ids) != 1 {
			t.Errorf("request %d (seed %d): ids %v", i, seed, o.ids)
		}
		for id := range o.ids {
			ids[id] = true
			// By its id it has the same text.
			if i%10 == 0 {
				var c completion
				resp, err := client.Get(v.url() + "/v1/completions/" + id)
				if err == nil {
					err = json.NewDecoder(resp.Body).Decode(&c)
					resp.Body.Close()
				}
				if err != nil || c.Status != "completed" || *c.Choices[0].Text != wants[i] {
					t.Errorf("request %d by id: %+v, %v", i, c, err)
				}
			}
		}
		if o.starts > 1 {
			again++
		}
	}
	v.kill()
	if len(ids) != requests {
		t.Errorf("%d requests, %d ids", requests, len(ids))
	}
	t.Logf("%d requests, %d kills, %d were sent more than once, all answered with their text (seed %d)", requests, kills, again, seed)
}
