package served

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Program is the program `plan` and the folder that it runs in.
type Program struct {
	Path   string
	Folder string // empty for the folder of this process
}

// Run runs a verb to its end. The error has what the program said.
func (p Program) Run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Dir = p.Folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("plan %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Server is a process of `plan` that serves, and its log.
type Server struct {
	Command             *exec.Cmd
	HTTP, GRPC, Metrics string        // addresses that it says; empty before it serves
	Ended               chan struct{} // closed when the process has ended and all of its log is read

	mu   sync.Mutex
	log  []string
	news chan struct{} // closed and made anew with every line
}

// Start starts a verb that serves and does not wait for it. When the context ends, the process is asked to end, and killed 10 s later.
func (p Program) Start(ctx context.Context, args ...string) (*Server, error) {
	s := &Server{Command: exec.CommandContext(ctx, p.Path, args...), Ended: make(chan struct{}), news: make(chan struct{})}
	s.Command.Dir, s.Command.WaitDelay = p.Folder, 10*time.Second
	s.Command.Cancel = func() error { return s.Command.Process.Signal(syscall.SIGTERM) }
	log, err := s.Command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Command.Start(); err != nil {
		return nil, fmt.Errorf("starting plan %s: %w", args[0], err)
	}
	go s.readLog(log)
	return s, nil
}

// addresses is the line with which `plan serve` says where it serves.
var addresses = regexp.MustCompile(`serving .*: HTTP (\S+), gRPC (\S+), metrics ([^;]+);`)

// startsWithin says how long `plan serve` may take until it serves.
const startsWithin = 2 * time.Minute

// Serve starts `plan serve` and waits until it says its addresses. If it ends before, Serve returns the ended server and an error
// with its log; if it says nothing, it is killed.
func (p Program) Serve(ctx context.Context, args ...string) (*Server, error) {
	s, err := p.Start(ctx, append([]string{"serve"}, args...)...)
	if err != nil {
		return nil, err
	}
	line, err := s.Await(ctx, 0, startsWithin, addresses.MatchString)
	if err != nil {
		s.Kill()
		return s, fmt.Errorf("plan serve does not serve: %w\n%s", err, s.Tail())
	}
	m := addresses.FindStringSubmatch(line)
	s.HTTP, s.GRPC, s.Metrics = m[1], m[2], m[3]
	return s, nil
}

// readLog reads the log to its end.
func (s *Server) readLog(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, log) // behind a line that is too long
	_ = s.Command.Wait()            // the exit code is read from ProcessState
	close(s.Ended)
}

// Lines returns the lines that the process has written so far.
func (s *Server) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log[:len(s.log):len(s.log)]
}

// Tail returns the last 12 lines of the log; if the process panicked, it returns 60 lines from there on.
func (s *Server) Tail() string {
	const last, ofPanic = 12, 60
	lines := s.Lines()
	for i, line := range lines {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "runtime:") {
			return strings.Join(lines[i:min(i+ofPanic, len(lines))], "\n")
		}
	}
	return strings.Join(lines[max(0, len(lines)-last):], "\n")
}

// Await waits for a line, from a place of the log on.
func (s *Server) Await(ctx context.Context, from int, wait time.Duration, is func(line string) bool) (string, error) {
	limit := time.After(wait)
	for {
		s.mu.Lock()
		list, news := s.log[min(from, len(s.log)):], s.news
		s.mu.Unlock()
		for _, line := range list {
			if is(line) {
				return line, nil
			}
		}
		from += len(list)
		select {
		case <-news:
		case <-s.Ended:
			if len(s.Lines()) == from {
				return "", errors.New("the process has ended")
			}
		case <-limit:
			return "", fmt.Errorf("nothing said within %v", wait)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Alive reports whether the process has not ended.
func (s *Server) Alive() bool {
	select {
	case <-s.Ended:
		return false
	default:
		return true
	}
}

// ExitCode returns the exit code of a process that has ended; it is negative if a signal ended it.
func (s *Server) ExitCode() int {
	<-s.Ended
	return s.Command.ProcessState.ExitCode()
}

// Stop asks the process to end and waits until it has. It returns an error with the log unless the exit code is 0; a process that
// does not end is killed.
func (s *Server) Stop() error {
	_ = s.Command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.Ended:
	case <-time.After(stopsWithin):
		s.Kill()
	}
	if code := s.ExitCode(); code != 0 {
		return fmt.Errorf("the server ended with code %d, expected 0\n%s", code, s.Tail())
	}
	return nil
}

// stopsWithin says how long a server may take until it ends: it answers what it has accepted within 30 s.
const stopsWithin = 45 * time.Second

// Kill kills the process and waits until it has ended.
func (s *Server) Kill() {
	_ = s.Command.Process.Kill() // it may have ended
	<-s.Ended
}
