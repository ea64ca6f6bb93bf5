package natstest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Run starts a server of one node in this process and gives its address.
func Run(t testing.TB) string {
	t.Helper()
	url, stop, err := Alone(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

// Alone starts a server of one node in this process, which keeps its data in a folder; its
// address, and what ends it.
func Alone(folder string) (url string, stop func(), err error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: folder, SyncAlways: true, NoLog: true, NoSigs: true})
	if err != nil {
		return "", nil, err
	}
	s.Start()
	stop = func() { s.Shutdown(); s.WaitForShutdown() }
	if !s.ReadyForConnections(20 * time.Second) {
		stop()
		return "", nil, errors.New("the server does not come up")
	}
	return s.ClientURL(), stop, nil
}

// node is the variable that makes this program a node of a cluster.
const node = "INFERPLAN_NATS_NODE"

// Main runs a node until the process is killed, where this process was started as one.
// A program whose clusters are made of itself calls it first.
func Main() {
	name := os.Getenv(node)
	if name == "" {
		return
	}
	fmt.Fprintln(os.Stderr, serve(name))
	os.Exit(1)
}

func serve(name string) error {
	port, _ := strconv.Atoi(os.Getenv("CLIENT"))
	cluster, _ := strconv.Atoi(os.Getenv("CLUSTER"))
	var routes []*url.URL
	for r := range strings.SplitSeq(os.Getenv("ROUTES"), ",") {
		routes = append(routes, &url.URL{Scheme: "nats", Host: r})
	}
	s, err := server.NewServer(&server.Options{ServerName: name, Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: os.Getenv("STORE"), SyncAlways: true, NoLog: true, NoSigs: true,
		Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: cluster}, Routes: routes})
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the node ended")
}

// Cluster is three nodes, each a process.
type Cluster struct {
	URL   string
	env   [3][]string
	nodes [3]*exec.Cmd
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
		routes = append(routes, fmt.Sprint("127.0.0.1:", ports[3+i]))
	}
	c.URL = strings.Join(clients, ",")
	for i := range c.nodes {
		store := filepath.Join(folder, fmt.Sprint("node", i))
		c.env[i] = append(os.Environ(), fmt.Sprint(node, "=n", i), "STORE="+store, fmt.Sprint("CLIENT=", ports[i]), fmt.Sprint("CLUSTER=", ports[3+i]), "ROUTES="+strings.Join(routes, ","))
		if err := c.Again(i); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
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
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = c.env[i], os.Stderr
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
