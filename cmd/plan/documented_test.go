package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// parallelPages is the number of pages whose commands run at the same time.
const parallelPages = 2

// pageTimeLimit is the wall time after which the commands of a page have failed.
const pageTimeLimit = 4 * time.Minute

// TestDocumentedCommands runs the commands of every page and of every --help, as a reader would type them: those of a page
// in order, by one shell, in a folder of its own that starts empty. pageBlock says which blocks run.
func TestDocumentedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("leave out -short to run the commands of documents, as make test does without the race detector")
	}
	root := repositoryRoot(t)
	for _, need := range []string{filepath.Join(root, "third_party", "models", "files", "light_squeezenet.onnx"), engineLibrary(root)} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("run make setup: %v", err)
		}
	}
	pages, err := documentedPages(root)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{}, parallelPages)
	for _, page := range pages {
		if !page.hasRunningBlock() {
			continue
		}
		t.Run(page.name, func(t *testing.T) {
			t.Parallel()
			free <- struct{}{}
			defer func() { <-free }()
			runPage(t, root, page)
		})
	}
}

// repositoryRoot returns the folder of the repository.
func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// engineLibrary returns the path of ONNX Runtime's library.
func engineLibrary(root string) string {
	if path := os.Getenv("INFERPLAN_ORT_LIB"); path != "" {
		return path
	}
	return filepath.Join(root, "third_party", "ort", "lib", "libonnxruntime.so.1")
}

// runPage runs the commands of a page, and ends the servers that they leave.
func runPage(t *testing.T, root string, page documentedPage) {
	dir, ports := t.TempDir(), freePorts(t)
	script := pageScript(page, ports)
	for _, block := range page.blocks {
		for _, given := range block.given {
			if err := copyGiven(dir, root, given); err != nil {
				t.Fatalf("%s:%d: given: %v", page.name, block.line, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir = dir
	// The servers of a page listen where no other page's do.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8", "INFERPLAN_ORT_LIB=" + engineLibrary(root),
		"INFERPLAN_DIGITS=" + filepath.Join(root, "third_party", "digits", "files"),
		"INFERPLAN_MODEL_FILES=" + filepath.Join(root, "third_party", "models", "files"),
		"INFERPLAN=" + root, "INFERPLAN_HTTP=" + ports.address(0), "INFERPLAN_GRPC=" + ports.address(1), "INFERPLAN_METRICS=" + ports.address(2),
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_AUTHOR_NAME=reader", "GIT_AUTHOR_EMAIL=reader@example.org",
		"GIT_COMMITTER_NAME=reader", "GIT_COMMITTER_EMAIL=reader@example.org", "INFERPLAN_DRAIN=1s",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A file, unlike a pipe, does not make Wait wait for the servers that are left.
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	if cmd.Process != nil {
		endGroup(cmd.Process.Pid)
	}
	if state := cmd.ProcessState; state != nil {
		t.Logf("%.1f s of CPU", (state.UserTime() + state.SystemTime()).Seconds())
	}
	if err != nil {
		text, _ := os.ReadFile(output.Name())
		t.Errorf("%v, after:\n%s", err, text[max(0, len(text)-4000):])
	}
}

// endGroup ends the processes of a group, which a script that failed leaves, and returns once they are gone.
func endGroup(group int) {
	_ = syscall.Kill(-group, syscall.SIGTERM)
	for tries := range 100 {
		if err := syscall.Kill(-group, 0); err != nil {
			return
		}
		if tries == 30 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// pagePorts are the ports of a page's server, for HTTP, gRPC and metrics.
type pagePorts [3]string

// address returns the address of a port of this machine.
func (p pagePorts) address(port int) string { return "127.0.0.1:" + p[port] }

// freePorts returns three ports that nobody listens on.
func freePorts(t *testing.T) (ports pagePorts) {
	t.Helper()
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	return ports
}

// serverFunctions are shell functions about the server of a page, whose process is $server: until_ready waits until it
// answers that it is ready (one for language models at /health), and fails if it has ended; end_server ends it, if there is one, and fails if it does not end well.
const serverFunctions = `
server=
until_ready() {
  local code path=/v2/health/ready
  for _ in $(seq 600); do
    if { exec 9<>/dev/tcp/127.0.0.1/$http_port; } 2>/dev/null; then
      printf 'GET %s HTTP/1.0\r\n\r\n' $path >&9
      read -r _ code _ <&9 || code=
      exec 9>&-
      if [ "$code" = 200 ]; then return 0; fi
      if [ "$code" = 404 ]; then path=/health; fi
    fi
    kill -0 "$server" || return 1
    sleep .1
  done
  return 1
}
end_server() {
  if [ -z "$server" ]; then return; fi
  kill "$server"
  wait "$server"
  server=
}
`

// pageScript returns the script with the blocks of a page that run. Lines that start plan serve run in the background, and
// the lines after them once the server is ready.
func pageScript(page documentedPage, ports pagePorts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "http_port=%s%s", ports[0], serverFunctions)
	standard := strings.NewReplacer("127.0.0.1:8000", ports.address(0), "localhost:8000", ports.address(0), "127.0.0.1:8001", ports.address(1),
		"localhost:8001", ports.address(1), "127.0.0.1:8002", ports.address(2), "localhost:8002", ports.address(2))
	for _, block := range page.blocks {
		if !block.runs() {
			continue
		}
		fmt.Fprintf(&b, "echo '== %s:%d' >&2\n", page.name, block.line)
		for line := range strings.Lines(continued.ReplaceAllString(standard.Replace(block.text), " ")) {
			if command := strings.TrimSuffix(strings.TrimSpace(line), "&"); strings.HasPrefix(command, "plan serve ") {
				fmt.Fprintf(&b, "end_server\n(exec %s\n) &\nserver=$!\nuntil_ready\n", command)
			} else {
				b.WriteString(line)
			}
		}
	}
	b.WriteString("end_server\n")
	return b.String()
}

// copyGiven copies a file or folder of the repository into a folder: PATH, or NAME=PATH under another name. If PATH ends
// with a slash, what the folder holds is copied. Of an archive it copies all files, or with FILE.txtar#ENTRY one.
func copyGiven(dir, root, given string) error {
	name, path, renamed := strings.Cut(given, "=")
	if !renamed {
		path = given
		name = filepath.Base(path)
		if strings.HasSuffix(path, "/") {
			name = ""
		}
	}
	path, entry, _ := strings.Cut(path, "#")
	from, to := filepath.Join(root, path), filepath.Join(dir, name)
	if strings.HasSuffix(path, ".txtar") {
		return copyEntries(dir, from, entry, to)
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, data, 0o644))
	})
}

// copyEntries writes all files of an archive into a folder, or the entry, if one is named, as the file to.
func copyEntries(dir, archive, entry, to string) error {
	parsed, err := txtar.ParseFile(archive)
	if err != nil {
		return err
	}
	found := false
	for _, file := range parsed.Files {
		if entry != "" && file.Name != entry {
			continue
		}
		found = true
		path := to
		if entry == "" {
			path = filepath.Join(dir, file.Name)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, file.Data, 0o644)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s holds no file %q", archive, entry)
	}
	return nil
}

// commandsNotRun returns the page with the documented commands that TestDocumentedCommands does not run.
func commandsNotRun(pages []documentedPage) []byte {
	var b bytes.Buffer
	b.WriteString("# Commands that no test runs\n\nA test runs every other command of these documents and of `--help`. Of these, it checks that the verbs and flags exist. `make docs` writes\nthis page.\n")
	for _, reason := range notRunReasons {
		heading := false
		for _, page := range pages {
			for _, block := range page.blocks {
				if block.notRun != reason {
					continue
				}
				if !heading {
					fmt.Fprintf(&b, "\n## %s\n", strings.ToUpper(reason[:1])+reason[1:])
					heading = true
				}
				fmt.Fprintf(&b, "\n%s:\n\n```text\n%s\n```\n", page.name, strings.TrimSpace(block.text))
			}
		}
	}
	return b.Bytes()
}

// docs/not-run.md has the commands that do not run.
func TestCommandsNotRunAreListed(t *testing.T) {
	root := repositoryRoot(t)
	pages, err := documentedPages(root)
	if err != nil {
		t.Fatal(err)
	}
	path, want := filepath.Join(root, "docs", "not-run.md"), commandsNotRun(pages)
	if *recordGuards {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what the pages have: run make docs (%v)", path, err)
	}
}

// The verbs and flags of commands that do not run exist.
func TestCommandsNotRunParse(t *testing.T) {
	pages, err := documentedPages(repositoryRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, block := range page.blocks {
			if block.notRun == "" {
				continue
			}
			for _, wrong := range unknownParts(block.text) {
				t.Errorf("%s:%d: %s", page.name, block.line, wrong)
			}
		}
	}
}
