package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"inferplan/executor/durable"
)

// node is the variable that makes this program a node of a cluster.
const node = "INFERPLAN_NATS_NODE"

// serveNode runs a node until the process is killed.
func serveNode(name string) error {
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

// cluster is three nodes, each a process.
type cluster struct {
	t     testing.TB
	env   [3][]string
	nodes [3]*exec.Cmd
	url   string
}

// freePort finds a port that nobody has at the moment.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var clients, routes []string
	var ports [6]int
	for i := range ports {
		ports[i] = freePort(t)
	}
	for i := range c.nodes {
		clients = append(clients, fmt.Sprint("nats://127.0.0.1:", ports[i]))
		routes = append(routes, fmt.Sprint("127.0.0.1:", ports[3+i]))
	}
	c.url = strings.Join(clients, ",")
	for i := range c.nodes {
		c.env[i] = append(os.Environ(), fmt.Sprint(node, "=n", i), "STORE="+t.TempDir(), fmt.Sprint("CLIENT=", ports[i]), fmt.Sprint("CLUSTER=", ports[3+i]), "ROUTES="+strings.Join(routes, ","))
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

func (c *cluster) start(i int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = c.env[i], os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[i] = cmd
}

func (c *cluster) kill(i int) {
	c.nodes[i].Process.Kill()
	c.nodes[i].Wait()
}

// Nodes of the cluster are killed, one at a time. What was accepted is served, and ends
// once.
func TestNodesAreKilled(t *testing.T) {
	kills, between, pause := 1, time.Second, 50*time.Millisecond
	if os.Getenv("INFERPLAN_LONG") != "" {
		kills, between, pause = 30, 1500*time.Millisecond, 0
	}
	c := newCluster(t)
	front, back := place(c.url, Options{}).Open(t), place(c.url, Options{}).Open(t)
	defer front.Close()
	defer back.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	accepted, unclear, ends := map[string]bool{}, 0, map[string]int{}
	busy, stop := context.WithCancel(ctx)
	var writers, servers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				_, err := front.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)})
				mu.Lock()
				if err == nil {
					accepted[id] = true
				} else {
					unclear++
				}
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	all, served := context.WithCancel(ctx)
	for range 4 {
		servers.Go(func() {
			for {
				st, err := back.Claim(all)
				if err != nil {
					return
				}
				err = back.Append(ctx, st.ID, len(st.Text), []byte("text"), 1)
				if err == nil {
					err = back.Finish(ctx, st.ID, st.Data)
				}
				mu.Lock()
				if err == nil {
					ends[st.ID]++
				} else if !errors.Is(err, durable.ErrFinished) {
					t.Logf("%s: %v", st.ID, err)
				}
				mu.Unlock()
			}
		})
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		time.Sleep(time.Duration(r.Int64N(int64(between))))
		i := r.IntN(3)
		c.kill(i)
		time.Sleep(time.Duration(r.Int64N(int64(between))))
		c.start(i)
		// The next node is killed when this one is back: two of three must be there.
		time.Sleep(between)
	}
	stop()
	writers.Wait()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		n := len(ends)
		mu.Unlock()
		if n >= len(accepted) {
			break
		}
	}
	served()
	servers.Wait()
	lost, twice := 0, 0
	for id := range accepted {
		st, err := front.Get(ctx, id)
		if err != nil || string(st.Data) != id || string(st.End) != id {
			lost++
			t.Errorf("%s (seed %d): %+v, %v", id, seed, st, err)
		}
	}
	for _, n := range ends {
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d kills: %d accepted, %d unclear, %d ended, %d lost, %d ended twice (seed %d)", kills, len(accepted), unclear, len(ends), lost, twice, seed)
	if twice > 0 || len(accepted) < 10*kills {
		t.Errorf("%d accepted, %d ended twice", len(accepted), twice)
	}
}
