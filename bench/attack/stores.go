package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/figures"
	"inferplan/bench/llm/made"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/testkit/llm/fake"
)

// keeper is `plan serve` of a plan of queues, in front of a server of language models that
// answers at once.
type keeper struct {
	*attack
	plan string
	llm  *fake.Server
}

// stores damages the file of accepted requests, and takes the room on its disk away.
func stores(a *attack, ctx context.Context) ([]figures.Figure, error) {
	k := &keeper{attack: a, plan: filepath.Join(a.dir, "queue.json")}
	if _, err := document.WriteFile(k.plan, made.Plan(textModel, 1, fleetSequences)); err != nil {
		return nil, err
	}
	llm, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: fleetSequences, Token: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer llm.Stop()
	k.llm = llm
	damaged, err := k.damaged(ctx)
	if err != nil {
		return nil, err
	}
	full, err := k.noRoom(ctx)
	return append(damaged, full...), err
}

// serve starts `plan serve` with a file of requests. Where it ends instead, the error is nil
// and the server has ended.
func (k *keeper) serve(ctx context.Context, file string) (*server, error) {
	s := &server{cmd: exec.CommandContext(ctx, k.target.plan, "serve", k.plan, "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--queue", file, "--server", k.llm.URL()), ended: make(chan struct{}), news: make(chan struct{})}
	said, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go s.listen(said)
	line, err := s.said(ctx, 0, 30*time.Second, func(line string) bool { return serving.MatchString(line) })
	if err != nil {
		if s.alive() {
			s.kill()
			return nil, err
		}
		return s, nil
	}
	m := serving.FindStringSubmatch(line)
	s.http, s.metrics = m[1], m[3]
	return s, nil
}

// filled makes a file of so many requests that were answered, and of some that were not:
// the server is killed while it answers.
func (k *keeper) filled(ctx context.Context, file string, n int) error {
	s, err := k.serve(ctx, file)
	if err != nil {
		return err
	}
	defer s.kill()
	if got := askAll(ctx, "http://"+s.http, n); got.kinds["right"] != n {
		return fmt.Errorf("filling the file of requests: %s", listed(got.kinds))
	}
	var wg sync.WaitGroup
	for i := range 8 * fleetSequences {
		wg.Go(func() { k.ask(s.http, fmt.Sprint("late ", i), 500) })
	}
	time.Sleep(50 * time.Millisecond)
	s.kill()
	wg.Wait()
	return nil
}

// ask sends a request that is kept and returns its status, and after how long it may come
// again.
func (k *keeper) ask(address, prompt string, tokens int) (status int, after string) {
	client := &http.Client{Timeout: 30 * time.Second}
	resp, err := client.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"store":true}`, textModel, prompt, tokens)))
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

const pageSize = 4096

// damages are the ways in which a file is damaged. None leaves it as it is.
var damages = []func(rng *rand.Rand, b []byte) []byte{
	func(rng *rand.Rand, b []byte) []byte { return b[:rng.IntN(len(b))] },
	func(rng *rand.Rand, b []byte) []byte { clear(b[rng.IntN(len(b)):]); return b },
	func(rng *rand.Rand, b []byte) []byte { // pages of rubbish
		at := rng.IntN(len(b))
		for i := at; i < min(at+(1+rng.IntN(20))*pageSize, len(b)); i++ {
			b[i] = byte(rng.Uint32())
		}
		return b
	},
	func(rng *rand.Rand, b []byte) []byte { // a page where another belongs
		pages := len(b) / pageSize
		copy(b[rng.IntN(pages)*pageSize:], b[rng.IntN(pages)*pageSize:][:pageSize])
		return b
	},
	func(rng *rand.Rand, b []byte) []byte { // single bits
		for range 1 + rng.IntN(200) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return b
	},
	func(_ *rand.Rand, b []byte) []byte { clear(b[:2*pageSize]); return b },
}

// damaged starts the server with damaged files, reads out what is left of them, and starts
// it with that.
func (k *keeper) damaged(ctx context.Context) ([]figures.Figure, error) {
	whole := filepath.Join(k.dir, "whole.db")
	const requests = 300
	if err := k.filled(ctx, whole, requests); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		return nil, err
	}
	rng := seeded.New(k.seed, "damage")
	var wrong []string
	n, served, lost, rescued, records := k.count(120), 0, 0, 0, 0
	for i := range n {
		file, left := filepath.Join(k.dir, fmt.Sprintf("damaged-%d.db", i)), filepath.Join(k.dir, fmt.Sprintf("left-%d.db", i))
		damage := i % len(damages)
		if err := os.WriteFile(file, damages[damage](rng, append([]byte{}, data...)), 0o600); err != nil {
			return nil, err
		}
		fail := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("file %d, damage %d: ", i, damage)+fmt.Sprintf(format, args...))
		}
		why, err := k.start(ctx, file, true)
		if err != nil {
			return nil, err
		}
		if why != "" {
			fail("%s", why)
		}
		e := k.call(ctx, k.dir, "rescue", file, "-o", left, "--json")
		switch {
		case strings.Contains(e.said, "panic") || strings.Contains(e.said, "fatal error") || e.code != 0 && e.code != 1 && e.code != 5:
			fail("plan rescue ends with %d: %.300s", e.code, e.said)
		case e.code == 5:
			lost++
		default:
			rescued++
			var r struct{ Records int }
			if err := json.Unmarshal([]byte(e.out), &r); err != nil {
				fail("plan rescue --json: %v: %.300s", err, e.out)
			}
			records += r.Records
			if why, err = k.start(ctx, left, false); err != nil {
				return nil, err
			}
			if why != "" {
				fail("what plan rescue wrote: %s", why)
			} else {
				served++
			}
		}
		os.Remove(file)
		os.Remove(left)
	}
	k.printf("damaged files: %d, of %d something was rescued, %d requests each in the mean; wrong: %q\n", n, rescued, records/max(rescued, 1), wrong)
	return []figures.Figure{{Claim: "damaged files of accepted requests: plan serve or plan rescue panics, ends otherwise than with 5, or what was rescued is not served", Source: source, Asked: "none", Measured: float64(len(wrong)),
		Unit: fmt.Sprintf("of %d", n), Holds: figures.If(len(wrong) == 0),
		Note: fmt.Sprintf("of %d nothing could be read, the other %d were served again, with %d of %d requests in the mean", lost, served, records/max(rescued, 1), requests+8*fleetSequences)}}, nil
}

// start starts the server with a file and says what is wrong with how that ends. A file
// that may be damaged is refused with 5 and a hint, or served.
func (k *keeper) start(ctx context.Context, file string, damaged bool) (wrong string, err error) {
	s, err := k.serve(ctx, file)
	if err != nil {
		return "", err
	}
	log := func() string { return strings.Join(s.lines(), "\n") }
	if !s.alive() {
		code := s.cmd.ProcessState.ExitCode()
		if s.panics() > 0 || !damaged || code != 5 || !strings.Contains(log(), "plan rescue") {
			return fmt.Sprintf("plan serve ends with %d: %.300s", code, log()), nil
		}
		return "", nil
	}
	if status, _ := k.ask(s.http, "after the damage", 2); status != http.StatusOK {
		wrong = fmt.Sprintf("a request is answered with %d", status)
	}
	if code, err := s.stop(); err != nil || code != 0 || s.panics() > 0 {
		wrong = fmt.Sprintf("plan serve ends with %d, %d panics: %.300s", code, s.panics(), log())
	}
	return wrong, nil
}

// noRoom fills the disk of the file and makes room again.
func (k *keeper) noRoom(ctx context.Context) ([]figures.Figure, error) {
	disk := filepath.Join(k.dir, "small")
	if err := os.Mkdir(disk, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=512k"); err != nil {
		k.printf("full disk under the queue: left out, a file system of 512 KiB cannot be mounted: %v\n", err)
		return nil, nil
	}
	defer func() { _ = unix.Unmount(disk, 0) }()
	s, err := k.serve(ctx, filepath.Join(disk, "requests.db"))
	if err != nil {
		return nil, err
	}
	defer s.kill()
	health := func() int {
		resp, err := http.Get("http://" + s.http + "/health")
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	full := func() float64 {
		series, err := s.scrape()
		if err != nil {
			return -1
		}
		return series["inferplan_store_full"]
	}
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	const n = 100
	answers := map[string]int{}
	for i := range n {
		status, after := k.ask(s.http, fmt.Sprint(i, strings.Repeat(" long", 2000)), 2)
		answers[fmt.Sprint(status)]++
		check(status == http.StatusOK || status == http.StatusServiceUnavailable && after != "", "request %d: %d, Retry-After %q", i, status, after)
	}
	refused := answers["503"]
	check(refused > 0 && answers["200"] > 0, "answers %s", listed(answers))
	check(health() == http.StatusServiceUnavailable && full() == 1, "while the disk is full: health %d, store_full %g", health(), full())
	said := strings.Count(strings.Join(s.lines(), "\n"), "level=ERROR")
	check(said >= 1 && said <= 3, "%d lines of log", said)
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		return nil, err
	}
	check(health() == http.StatusOK && full() == 0, "with room: health %d, store_full %g", health(), full())
	status, _ := k.ask(s.http, "with room", 2)
	check(status == http.StatusOK, "with room: %d", status)
	code, err := s.stop()
	check(err == nil && code == 0 && s.panics() == 0, "the server ends with %d, %d panics: %v", code, s.panics(), errors.Join(err))
	k.printf("full disk under the queue: %d requests, %s; %d lines of log; wrong: %q\n", n, listed(answers), said, wrong)
	return []figures.Figure{{Claim: "full disk under accepted requests: other answers than 200 and 503 with Retry-After, readiness, metric and log that do not say so, no service once there is room", Source: source, Asked: "none",
		Measured: float64(len(wrong)), Unit: fmt.Sprintf("of %d requests and 5 looks", n), Holds: figures.If(len(wrong) == 0), Note: fmt.Sprintf("%s; %d lines of log", listed(answers), said)}}, nil
}
