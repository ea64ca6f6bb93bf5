package natstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run starts a server of one node and returns its address. It ends with the test.
func Run(t testing.TB) string {
	t.Helper()
	url, stop, err := Alone(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

// Alone starts a server of one node, which keeps its data in a folder. It returns its address, and what ends it.
func Alone(folder string) (url string, stop func(), err error) {
	c := &Cluster{}
	if err := c.configure(0, folder, "port: -1"); err != nil {
		return "", nil, err
	}
	if err := c.Again(0); err != nil {
		return "", nil, err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if url := clientURL(folder); url != "" {
			return url, c.Stop, nil
		}
	}
	c.Stop()
	return "", nil, errors.New("the NATS server does not come up")
}

// clientURL returns the address that a server has written into a folder once it takes connections. Before, it is empty.
func clientURL(folder string) string {
	files, _ := filepath.Glob(filepath.Join(folder, "*.ports")) // the pattern is valid
	for _, file := range files {
		var addresses struct{ NATS []string }
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &addresses) == nil && len(addresses.NATS) > 0 {
			return addresses.NATS[0]
		}
	}
	return ""
}

// program returns the path of the server. The go command builds it once and keeps it in its cache.
var program = sync.OnceValues(func() (string, error) {
	var said bytes.Buffer
	cmd := exec.Command("go", "tool", "-n", "nats-server")
	cmd.Stderr = &said
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building nats-server: %w\n%s", err, &said)
	}
	return strings.TrimSpace(string(path)), nil
})

// Cluster is three nodes, each a process.
type Cluster struct {
	URL     string
	configs [3]string // their files
	nodes   [3]*exec.Cmd
}

// Start starts a cluster that keeps its data in a folder.
func Start(folder string) (*Cluster, error) {
	c := &Cluster{}
	var clients, routes []string
	var ports [6]int
	for i := range ports {
		var err error
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	for i := range c.nodes {
		clients = append(clients, fmt.Sprint("nats://127.0.0.1:", ports[i]))
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprint("nats://127.0.0.1:", ports[3+i])))
	}
	c.URL = strings.Join(clients, ",")
	for i := range c.nodes {
		err := c.configure(i, filepath.Join(folder, fmt.Sprint("node", i)), fmt.Sprintf("port: %d\nserver_name: n%d\ncluster { name: c, host: 127.0.0.1, port: %d, routes: [%s] }",
			ports[i], i, ports[3+i], strings.Join(routes, ", ")))
		if err == nil {
			err = c.Again(i)
		}
		if err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

// configure writes the configuration of a node, which keeps its data in a folder.
func (c *Cluster) configure(node int, folder, lines string) error {
	c.configs[node] = filepath.Join(folder, "nats.conf")
	text := fmt.Sprintf("host: 127.0.0.1\n%s\nports_file_dir: %q\njetstream { store_dir: %q, sync_interval: always }\n", lines, folder, folder)
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(c.configs[node], []byte(text), 0o600))
}

// FreePort finds a port that nobody has at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Again starts a node that was killed.
func (c *Cluster) Again(i int) error {
	path, err := program()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "-c", c.configs[i])
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	c.nodes[i] = cmd
	return nil
}

// Kill kills a node.
func (c *Cluster) Kill(i int) {
	if c.nodes[i] != nil {
		_ = c.nodes[i].Process.Kill() // it may be gone
		_ = c.nodes[i].Wait()         // it was killed
		c.nodes[i] = nil
	}
}

// Stop kills all nodes.
func (c *Cluster) Stop() {
	for i := range c.nodes {
		c.Kill(i)
	}
}
