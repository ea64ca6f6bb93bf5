package llamatest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Models that make llama writes: TinyA and TinyB are of one size, Small is four
// times as large.
const (
	TinyA = "tiny-a"
	TinyB = "tiny-b"
	Small = "small"
)

// Options say what a server runs.
type Options struct {
	Models []string // models that it may load; all if nil
	Loaded int      // models in memory at once; 0 stands for 1
	Slots  int      // sequences at once; 0 stands for 4
	Alone  string   // the one model of a server without a router; if empty, there is a router
	Args   []string // further arguments
}

// Server is a running one.
type Server struct {
	URL     string
	Version string // of its package
	cmd     *exec.Cmd
	exited  chan struct{}
	log     logged
}

// patience is how long a server may take to start and to end.
const patience = 30 * time.Second

// Start starts a server that ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	home, err := folder()
	if err != nil {
		t.Skipf("no llama-server: %v; make llama sets it up", err)
	}
	s := &Server{exited: make(chan struct{}), Version: version(home)}
	models := filepath.Join(home, "models")
	if o.Models != nil {
		if models, err = chosen(t.TempDir(), models, o.Models); err != nil {
			t.Fatal(err)
		}
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "http://127.0.0.1:" + port
	what := []string{"--models-dir", models, "--models-max", strconv.Itoa(cmp.Or(o.Loaded, 1))}
	if o.Alone != "" {
		what = []string{"-m", filepath.Join(models, o.Alone+".gguf")}
	}
	if err := s.start(filepath.Join(home, "llama-server"), append(append(what,
		"--host", "127.0.0.1", "--port", port, "-t", "1", "-np", strconv.Itoa(cmp.Or(o.Slots, 4)), "-fa", "off", "--metrics"), o.Args...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("llama-server said: %s", s.log.end())
		}
	})
	if err := s.ready(); err != nil {
		t.Fatalf("llama-server: %v", err)
	}
	return s
}

// Kill ends the server and its models at once, as a crash does.
func (s *Server) Kill() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.exited
}

// folder finds third_party/llama of the repository that the test runs in.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod in this folder or above")
		}
		dir = up
	}
	home := filepath.Join(dir, "third_party", "llama")
	for _, name := range []string{"llama-server", filepath.Join("models", Small+".gguf")} {
		if _, err := os.Stat(filepath.Join(home, name)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("third_party/llama/%s is not there", name)
		} else if err != nil {
			return "", err
		}
	}
	return home, nil
}

func version(home string) string {
	data, _ := os.ReadFile(filepath.Join(home, "VERSION"))
	for line := range bytes.Lines(data) {
		if v, ok := bytes.CutPrefix(line, []byte("Version: ")); ok {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

// chosen makes a folder of some models.
func chosen(dir, from string, names []string) (string, error) {
	for _, n := range names {
		path := filepath.Join(from, n+".gguf")
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("the model %s: %w", n, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, n+".gguf")); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// start runs the server in a process group of its own: it starts a process for
// each model. It ends with this process, however that ends.
func (s *Server) start(path string, args []string) error {
	s.cmd = exec.Command(path, args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting llama-server: %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	return nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %s", s.log.end())
		case <-ctx.Done():
			return fmt.Errorf("not ready after %v: %s", patience, s.log.end())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server and all that it started.
func (s *Server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(patience):
	}
	s.Kill()
}

// logged keeps the end of what a server says.
type logged struct {
	mu   sync.Mutex
	data []byte
}

const keptLog = 16 << 10

func (l *logged) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, data...)
	if len(l.data) > 2*keptLog {
		l.data = append([]byte(nil), l.data[len(l.data)-keptLog:]...)
	}
	return len(data), nil
}

func (l *logged) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data[max(0, len(l.data)-2000):])
}
