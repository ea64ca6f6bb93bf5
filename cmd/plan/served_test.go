package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// server is `plan serve` in the background of a script.
type server struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	text strings.Builder
	done chan struct{} // closed when the output has ended
}

var addresses = regexp.MustCompile(`HTTP (\S+), gRPC (\S+), metrics (\S+); `)

// served starts `plan serve ARGS...` in the background and waits until it
// serves; its addresses are then in $HTTP, $GRPC and $METRICS.
func served(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: served ARGS...")
	}
	path, err := exec.LookPath("plan")
	ts.Check(err)
	s := &server{done: make(chan struct{})}
	s.cmd = exec.Command(path, append([]string{"serve"}, args...)...)
	s.cmd.Dir = ts.Getenv("WORK")
	s.cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "INFERPLAN_ORT_LIB="+ts.Getenv("INFERPLAN_ORT_LIB"))
	out, err := s.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Defer(func() { _ = s.cmd.Process.Kill(); <-s.done })
	ready := make(chan []string, 1)
	go func() {
		defer close(s.done)
		defer close(ready)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.text.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if m := addresses.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m
			}
		}
	}()
	m := <-ready
	if m == nil {
		err := s.cmd.Wait()
		ts.Fatalf("plan serve ended before it served: %v\n%s", err, s.text.String())
	}
	ts.Setenv("HTTP", m[1])
	ts.Setenv("GRPC", m[2])
	ts.Setenv("METRICS", m[3])
	servers.Store(ts, s)
}

// servers are those that run, by script.
var servers sync.Map

// drained ends the server as an operator does and requires that it ends well, or
// with an exit code. What it wrote to stderr is what stderr then looks at.
func drained(ts *testscript.TestScript, neg bool, args []string) {
	v, ok := servers.LoadAndDelete(ts)
	if neg || len(args) > 1 || !ok {
		ts.Fatalf("usage: drained [CODE], after served")
	}
	s := v.(*server)
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.done
	_, werr := ts.Stderr().Write([]byte(s.text.String()))
	ts.Check(werr)
	err := s.cmd.Wait()
	if len(args) == 1 && fmt.Sprint(s.cmd.ProcessState.ExitCode()) == args[0] {
		return
	}
	if err != nil || len(args) == 1 {
		ts.Fatalf("plan serve: %v\n%s", err, s.text.String())
	}
}

// ask sends a request (GET without a body, else POST) and requires a status;
// the answer is the output that stdout looks at. Headers are NAME:VALUE.
//
//	ask STATUS URL [BODY [HEADER...]]
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: ask STATUS URL [BODY [HEADER...]]")
	}
	method, body := http.MethodGet, ""
	if len(args) > 2 {
		method, body = http.MethodPost, args[2]
	}
	r, err := http.NewRequest(method, args[1], strings.NewReader(body))
	ts.Check(err)
	for _, h := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(h, ":")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if got := fmt.Sprint(resp.StatusCode); got != args[0] {
		ts.Fatalf("status %s, expected %s: %s", got, args[0], text)
	}
	_, err = ts.Stdout().Write(text)
	ts.Check(err)
}
