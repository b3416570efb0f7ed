package collect

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// DefaultSectionTimeout bounds the reading of one section, retries included.
const DefaultSectionTimeout = 10 * time.Second

// Config says what a Scanner reads and how it signs.
type Config struct {
	// Host is where the node's state is found.
	Host Host
	// Node and AgentVersion are copied into the facts.
	Node, AgentVersion string
	// AssertNone is why a person says that no kube-proxy runs here; empty when nobody does. It is recorded, and does not
	// hold against a kube-proxy that is seen.
	AssertNone string
	// KubeProxy is where kube-proxy listens, when it is not where it usually does.
	KubeProxy KubeProxyAddresses
	// SectionTimeout bounds the reading of one section; 0 means DefaultSectionTimeout.
	SectionTimeout time.Duration
	// History makes the Scanner remember changes of the running mode, and how long no kube-proxy was seen. A one-shot reading has none to remember.
	History bool
	// ExcludeCIDRs is ipvs.excludeCIDRs as an earlier Scanner saw it, for one without a Memory.
	ExcludeCIDRs []string
	// Memory keeps the history over restarts; nil for the life of the Scanner alone.
	Memory Memory
}

// Scanner reads a node. Use New. Safe for use by several goroutines.
type Scanner struct {
	config  Config
	modules *modules
	rules   *ruleReader
	ipsets  *ipsetReader
	history *history // nil without Config.History
	exclude exclusions
	files   fileCache
	seed    maphash.Seed // of fingerprints that are compared

	mu   sync.Mutex
	busy map[offrampv1.SectionKind]bool
}

// New makes a Scanner. It reads nothing yet.
func New(config Config) *Scanner {
	config.SectionTimeout = cmp.Or(config.SectionTimeout, DefaultSectionTimeout)
	scanner := &Scanner{
		config:  config,
		modules: newModules(config.Host),
		busy:    map[offrampv1.SectionKind]bool{},
		seed:    maphash.MakeSeed(),
	}
	scanner.exclude.see(config.ExcludeCIDRs)
	scanner.rules = newRuleReader(config.Host, scanner.modules)
	scanner.ipsets = &ipsetReader{mods: scanner.modules}
	if config.History {
		scanner.history = newHistory(config.Host.Now(), config.Memory)
	}
	return scanner
}

// Scan reads every section, one after the other, and returns all of them in the order of the enum. What cannot be read says
// so in its section and keeps nothing else from being read. A Scan takes at most the section timeout, and a moment, for
// each section.
func (s *Scanner) Scan(ctx context.Context) *offrampv1.NodeFacts {
	return s.scan(ctx, func(duty) []*offrampv1.Section { return nil })
}

// scan takes over the sections of a duty that kept returns, and reads those of which it returns none.
func (s *Scanner) scan(ctx context.Context, kept func(duty) []*offrampv1.Section) *offrampv1.NodeFacts {
	node := &offrampv1.NodeFacts{Node: s.config.Node, AgentVersion: s.config.AgentVersion}
	scan := &scan{scanner: s}
	s.perform(ctx, one(kindHistory, func(context.Context) *offrampv1.Section {
		s.history.open(s.config.Host.Now())
		s.exclude.recall(s.history.excluded())
		return absent(kindHistory)
	}))
	for _, duty := range scan.duties() {
		sections := kept(duty)
		if sections == nil {
			sections = s.perform(ctx, duty)
		}
		node.Sections = append(node.Sections, sections...)
	}
	if s.history != nil {
		s.history.see(glanceAt(facts.Find(node, kindKernel), facts.Find(node, kindKubeProxy)), s.config.Host.Now())
	}
	node.Sections = append(node.Sections, s.perform(ctx, one(kindHistory, func(context.Context) *offrampv1.Section {
		s.history.save()
		return s.history.section(s.config.Host.Now())
	}))...)
	slices.SortFunc(node.Sections, func(a, b *offrampv1.Section) int { return cmp.Compare(a.GetKind(), b.GetKind()) })
	return node
}

// duty reads one or a few sections that come from the same reading.
type duty struct {
	kinds []offrampv1.SectionKind
	read  func(context.Context) []*offrampv1.Section
}

func one(kind offrampv1.SectionKind, read func(context.Context) *offrampv1.Section) duty {
	return duty{[]offrampv1.SectionKind{kind}, func(ctx context.Context) []*offrampv1.Section {
		return []*offrampv1.Section{read(ctx)}
	}}
}

// scan is one round of reading. Safe for use by several goroutines, since a section that overran its time may go on.
type scan struct {
	scanner *Scanner

	mu       sync.Mutex
	network  *network
	attempts uint32
	listed   *processList
}

func (c *scan) duties() []duty {
	host, rules := c.scanner.config.Host, c.scanner.rules
	return []duty{
		one(kindKernel, func(context.Context) *offrampv1.Section { return readKernel(host) }),
		one(kindKubeProxy, c.readKubeProxy),
		one(kindIPVS, func(ctx context.Context) *offrampv1.Section { return readIPVS(ctx, host, c.claims, readStatistics) }),
		one(kindIPVSLink, c.readIPVSLink),
		{[]offrampv1.SectionKind{kindNFTIPv4, kindNFTIPv6, kindNFT}, rules.readNFT},
		one(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, func(ctx context.Context) *offrampv1.Section {
			return rules.readLegacy(ctx, kubeproxy.IPv4)
		}),
		one(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, func(ctx context.Context) *offrampv1.Section {
			return rules.readLegacy(ctx, kubeproxy.IPv6)
		}),
		// After the rules, which tell who holds a set.
		one(kindIPSets, func(ctx context.Context) *offrampv1.Section { return rules.joinHolders(c.scanner.ipsets.read(ctx)) }),
		one(kindSysctls, func(context.Context) *offrampv1.Section { return readSysctls(host) }),
		one(kindAddresses, func(ctx context.Context) *offrampv1.Section {
			return c.readNetworkSection(ctx, kindAddresses, addressesSection)
		}),
		one(kindHost, c.readHost),
	}
}

func (c *scan) readHost(ctx context.Context) *offrampv1.Section {
	in := hostSurroundings{host: c.scanner.config.Host, mods: c.scanner.modules, cache: &c.scanner.files, processes: c.processes()}
	if network, _, err := c.readNetwork(ctx); err == nil {
		in.network = network
	}
	return readHost(ctx, in)
}

// processes returns what kube-proxy was looked for among, and looks again where that could not be done. It is nil when that
// fails, too.
func (c *scan) processes() *processList {
	c.mu.Lock()
	known := c.listed
	c.mu.Unlock()
	if known != nil {
		return known
	}
	list, err := readProcesses(c.scanner.config.Host)
	if err != nil {
		return nil
	}
	return &list
}

func (c *scan) readKubeProxy(ctx context.Context) *offrampv1.Section {
	config := c.scanner.config
	in := proxySurroundings{
		host: config.Host, addresses: config.KubeProxy, assertedNone: config.AssertNone, history: c.scanner.history,
	}
	if network, _, err := c.readNetwork(ctx); err == nil {
		in.network = network
	}
	section, proxy := readKubeProxy(ctx, in)
	c.scanner.rules.setMasquerade(section.GetStable().GetKubeProxy().GetSettings())
	if proxy != nil {
		c.scanner.exclude.see(proxy.excludeCIDRs())
		c.scanner.history.seeExcluded(c.scanner.excludeCIDRs())
		c.mu.Lock()
		c.listed = &proxy.processes
		c.mu.Unlock()
	}
	return section
}

func (c *scan) readNetworkSection(
	ctx context.Context, kind offrampv1.SectionKind, report func(*network) *offrampv1.Section,
) *offrampv1.Section {
	network, attempts, err := c.readNetwork(ctx)
	if err != nil {
		section := failed(kind, err)
		section.Volatile.Attempts = attempts
		return section
	}
	section := report(network)
	section.Volatile.Attempts = attempts
	return section
}

// readNetwork reads links and addresses once a scan. A failure is not kept: the next section that needs them tries again.
func (c *scan) readNetwork(ctx context.Context) (*network, uint32, error) {
	c.mu.Lock()
	known, attempts := c.network, c.attempts
	c.mu.Unlock()
	if known != nil {
		return known, attempts, nil
	}
	network, attempts, err := readNetwork(ctx)
	if err == nil {
		c.mu.Lock()
		c.network, c.attempts = network, attempts
		c.mu.Unlock()
	}
	return network, attempts, err
}
