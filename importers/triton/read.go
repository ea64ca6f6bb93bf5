package triton

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
)

// reader reads the repositories of one deployment.
type reader struct {
	profile *formats.Profile
	pools   []formats.Pool // with defaults
	parts   []*part
	onCPU   map[triton.Device]int // instances by set of CPU threads
	notes   []string
}

// part is a model of a repository, with its instances.
type part struct {
	triton.Model
	identity  identity
	batch     int
	instances []instances
}

// Read returns what the repositories in dir deploy, with the devices of the cluster, and notes on what was taken for
// granted. The repository of dir itself is of one machine with all devices. Repositories in folders of dir are of the
// hosts of the cluster with these names. Parts of models are found by the profile's cuts. What is wrong with a
// configuration is a *document.Error.
func Read(dir string, profile *formats.Profile, cluster *formats.Cluster) (observed []formats.Deployed, notes []string, err error) {
	repositories, err := triton.ReadRepositories(dir)
	if err != nil {
		return nil, nil, err
	}
	return deployment(dir, repositories, profile, cluster)
}

// deployment returns what repositories deploy, with notes. Errors name dir as the folder of the repositories.
func deployment(dir string, repositories []triton.Repository, profile *formats.Profile, cluster *formats.Cluster) (observed []formats.Deployed, notes []string, err error) {
	var servers []Server
	for i := range repositories {
		host := triton.OneHost(cluster.Pools)
		if name := repositories[i].Host; name != "" {
			hosts := triton.Hosts(cluster.Pools, cluster.Host == formats.HostShared)
			named := document.First(hosts, func(h *triton.Host) bool { return h.Name == name })
			if named == nil {
				names := document.Map(hosts, func(h *triton.Host) string { return h.Name })
				return nil, nil, &document.Error{File: dir, Found: "a repository in the folder " + document.Quote(name), Expected: "folders that are named as the cluster's hosts: " + document.List(names),
					Hint: "import one repository with a cluster of its machine"}
			}
			host = *named
		}
		servers = append(servers, Server{Host: host, Models: repositories[i].Models})
	}
	return ReadServers(servers, profile, cluster)
}

// Server is a server that runs: the devices that it sees, in its order, and the models that it loads.
type Server struct {
	Host   triton.Host
	Models []triton.Model
	Group  string // parts of a model are stages of one pipeline within a group of servers
}

// ReadServers returns what servers deploy on devices of the cluster, as Read does.
func ReadServers(servers []Server, profile *formats.Profile, cluster *formats.Cluster) (observed []formats.Deployed, notes []string, err error) {
	r := &reader{profile: profile, onCPU: map[triton.Device]int{}}
	for _, p := range cluster.Pools {
		r.pools = append(r.pools, p.WithDefaults())
	}
	for i := range servers {
		if err := r.readServer(&servers[i]); err != nil {
			return nil, nil, err
		}
	}
	r.setShares()
	observed, err = r.deployed()
	return observed, r.notes, err
}

// readServer reads the models of one server: which part of which model each is, and where its instances are.
func (r *reader) readServer(s *Server) error {
	identities, err := r.identities(s.Models)
	if err != nil {
		return err
	}
	for _, m := range s.Models {
		if m.Config.GetEnsembleScheduling() != nil {
			continue
		}
		p := &part{Model: m, identity: identities[m.Config.Name], batch: r.batchOf(&m)}
		if p.identity.pipeline != "" {
			p.identity.pipeline += " of " + s.Group
		}
		if p.instances, err = r.instancesOf(&m, &s.Host); err != nil {
			return err
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// batchOf returns the largest batch that Triton forms of a model's requests: the largest preferred size, or else
// max_batch_size.
func (r *reader) batchOf(m *triton.Model) int {
	c := m.Config
	if c.GetSequenceBatching() != nil {
		r.note("%s: its sequences are planned as single requests", c.Name)
	}
	if c.MaxBatchSize < 1 {
		r.note("%s has no max_batch_size: planned without batches (where Triton completes configurations it may set 4)", c.Name)
		return 1
	}
	if preferred := c.GetDynamicBatching().GetPreferredBatchSize(); len(preferred) > 0 {
		return int(max(slices.Max(preferred), 1))
	}
	return int(c.MaxBatchSize)
}

// note adds a note, once.
func (r *reader) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}
