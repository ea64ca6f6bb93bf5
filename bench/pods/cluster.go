package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The network: a bridge of this machine, with a node behind each port. Pods get addresses from firstPod on.
const (
	network  = "198.18.89."
	host     = network + "1"
	firstPod = 10
	nodes    = 8
)

// cluster is the exported folder and the pods that play it.
type cluster struct {
	dir, scratch string
	image        string // folder with the program and its library
	models       string
	secrets      map[string]map[string][]byte
	config       map[string]string // names of ConfigMaps, and their files
	sets         []*appsv1.StatefulSet
	services     []*corev1.Service
	pods         []*pod
	log          io.Writer
}

// run runs a command to its end. The error has what it said.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// read reads the manifests of the folder, and makes the secrets.
func (c *cluster) read() error {
	paths, err := filepath.Glob(filepath.Join(c.dir, "base/*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for part := range strings.SplitSeq(string(data), "\n---\n") {
			var kind struct{ Kind string }
			set, service := &appsv1.StatefulSet{}, &corev1.Service{}
			var generated struct {
				ConfigMapGenerator []struct {
					Name  string
					Files []string
				}
			}
			err := yaml.Unmarshal([]byte(part), &kind)
			switch kind.Kind {
			case "StatefulSet":
				err = errors.Join(err, yaml.Unmarshal([]byte(part), set))
				c.sets = append(c.sets, set)
			case "Service":
				err = errors.Join(err, yaml.Unmarshal([]byte(part), service))
				c.services = append(c.services, service)
			case "Kustomization":
				err = errors.Join(err, yaml.Unmarshal([]byte(part), &generated))
				for _, g := range generated.ConfigMapGenerator {
					c.config[g.Name] = g.Files[0]
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	out, err := exec.Command(filepath.Join(c.dir, "secrets.sh")).Output()
	if err != nil {
		return fmt.Errorf("secrets.sh: %w", err)
	}
	for part := range strings.SplitSeq(string(out), "\n---\n") {
		var s corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(part), &s); err != nil {
			return fmt.Errorf("secrets.sh: %w", err)
		}
		c.secrets[s.Name] = s.Data
	}
	return nil
}

// nodeName returns the name of a node: of its network namespace and its wire.
func nodeName(i int) string { return fmt.Sprintf("ip%dn%d", os.Getpid()%100000, i) }

// bridgeName returns the name of the bridge.
func bridgeName() string { return fmt.Sprintf("ip%db", os.Getpid()%100000) }

// openNodes makes the nodes and the wires to them. If this machine does not permit that, it returns an error.
func openNodes() error {
	bridge := bridgeName()
	steps := [][]string{{"link", "add", bridge, "type", "bridge"}, {"addr", "add", host + "/24", "dev", bridge}, {"link", "set", bridge, "up"}}
	for i := range nodes {
		name := nodeName(i)
		steps = append(steps, []string{"netns", "add", name}, []string{"link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name},
			[]string{"link", "set", name, "master", bridge, "up"}, []string{"-n", name, "link", "set", "eth0", "up"}, []string{"-n", name, "link", "set", "lo", "up"})
	}
	for _, step := range steps {
		if err := run("ip", step...); err != nil {
			return err
		}
	}
	return nil
}

// closeNodes removes what openNodes made.
func closeNodes() {
	for i := range nodes {
		_ = run("ip", "netns", "del", nodeName(i))
		_ = run("ip", "link", "del", nodeName(i))
	}
	_ = run("ip", "link", "del", bridgeName())
}

// addPods makes the pods of all StatefulSets, each on a node of its own, so that pods may have the same ports.
func (c *cluster) addPods() error {
	for _, s := range c.sets {
		for i := range int(*s.Spec.Replicas) {
			p := &pod{
				cluster: c, set: s, name: s.Name + "-" + strconv.Itoa(i), node: nodeName(len(c.pods) % nodes), address: network + strconv.Itoa(firstPod+len(c.pods)),
				spec: &s.Spec.Template.Spec, labels: s.Spec.Template.Labels,
			}
			c.pods = append(c.pods, p)
			if err := run("ip", "-n", p.node, "addr", "add", p.address+"/24", "dev", "eth0"); err != nil {
				return err
			}
		}
	}
	for _, p := range c.pods {
		if err := p.makeRoot(); err != nil {
			return err
		}
	}
	return nil
}

// hosts returns the names of pods behind headless Services, as the cluster's DNS has them.
func (c *cluster) hosts() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n")
	for _, p := range c.pods {
		for _, s := range c.services {
			if s.Spec.ClusterIP == corev1.ClusterIPNone && p.set.Spec.ServiceName == s.Name && p.has(s.Spec.Selector) {
				fmt.Fprintf(&b, "%s %s.%s\n", p.address, p.name, s.Name)
			}
		}
	}
	return b.String()
}

// serversOf returns the pods that a Service selects.
func (c *cluster) serversOf(s *corev1.Service) (list []*pod) {
	for _, p := range c.pods {
		if p.has(s.Spec.Selector) {
			list = append(list, p)
		}
	}
	return list
}

// copy returns the number of the copy of the plan that the pod belongs to.
func (p *pod) copy() int {
	servers := p.cluster.serversOf(p.cluster.service())
	number, _ := strconv.Atoi(p.name[strings.LastIndex(p.name, "-")+1:])
	return number / (int(*p.set.Spec.Replicas) / len(servers))
}

// service returns the Service that clients use: the one with an address of its own.
func (c *cluster) service() *corev1.Service {
	i := slices.IndexFunc(c.services, func(s *corev1.Service) bool { return s.Spec.ClusterIP != corev1.ClusterIPNone })
	return c.services[i]
}

// forward takes connections at the Service's address and its port of a name, and forwards each to one of the pods that are
// ready, in turns, until the context ends. It returns the address.
func (c *cluster) forward(ctx context.Context, portName string) (string, error) {
	s := c.service()
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == portName })
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(s.Spec.Ports[i].Port))))
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for turn := 0; ; turn++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var ready []*pod
			for _, p := range c.serversOf(s) {
				if p.ready.Load() {
					ready = append(ready, p)
				}
			}
			if len(ready) == 0 {
				conn.Close()
				continue
			}
			p := ready[turn%len(ready)]
			go pipe(conn, net.JoinHostPort(p.address, strconv.Itoa(p.port(s.Spec.Ports[i].TargetPort.StrVal))))
		}
	}()
	return listener.Addr().String(), nil
}

// pipe copies between a connection and an address until both sides are done.
func pipe(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[1], pair[0])
			_ = pair[1].(*net.TCPConn).CloseWrite()
		})
	}
	wg.Wait()
}
