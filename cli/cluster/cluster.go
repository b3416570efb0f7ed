// Package cluster gets from a person's Kubernetes cluster what it takes to talk to its aggregator: a short-lived token of
// one of Offramp's ServiceAccounts, and the certificates to trust. The person's own credentials go to the API server alone.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // every kind of kubeconfig
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	variables "offramp.dev/offramp/internal/settings"
)

// Settings say which cluster is meant, and who to be there.
type Settings struct {
	// Kubeconfig is a file, Context one of its contexts; empty means what kubectl would take.
	Kubeconfig, Context string
	// As is the user to impersonate, as with kubectl.
	As string
	// Namespace is Offramp's; Short is the same by the flag -n, and wins.
	Namespace, Short string
	// Service is the aggregator's, by which it is reached where no address is given.
	Service string
	// Account is the ServiceAccount to ask for a token of; empty leaves it to the command.
	Account string
	// Audience is that of Offramp's tokens.
	Audience string
	// ConfigMap is where the aggregator publishes the certificates to trust.
	ConfigMap string
}

// AddFlags adds the flags that fill Settings.
func (s *Settings) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster to ask for a token and for the CA (default: as kubectl)")
	flags.StringVar(&s.Context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVar(&s.As, "as", "", "user to impersonate at the API server, as with kubectl")
	flags.StringVar(&s.Namespace, "offramp-namespace", "offramp", "namespace that Offramp runs in")
	flags.StringVarP(&s.Short, "namespace", "n", "", "the same as --offramp-namespace, and wins over it")
	flags.StringVar(&s.Service, "aggregator-service", defaultService, "Service of the aggregator, by which it is reached where no --aggregator is given")
	// They can only fail for a flag that does not exist.
	_ = variables.Also(flags, "offramp-namespace", "OFFRAMP_NAMESPACE")
	_ = variables.OnlyFlag(flags, "namespace")
	flags.StringVar(&s.Account, "account", "", "ServiceAccount to be (default: offramp-viewer to look, offramp-operator to order)")
	flags.StringVar(&s.Audience, "audience", "offramp", "audience of the token")
	flags.StringVar(&s.ConfigMap, "authority-configmap", "offramp-authority", "ConfigMap with the aggregator's CA")
}

// Named says whether somebody named a cluster.
func (s Settings) Named() bool { return s.Kubeconfig != "" || s.Context != "" || s.As != "" }

// defaultService is the name of the aggregator's Service.
const defaultService = "offramp-aggregator"

const (
	// tokenLife is the shortest that an API server gives; spare is how much of it a call must have left.
	tokenLife = 10 * time.Minute
	spare     = time.Minute
	// caKey is the ConfigMap's key with the certificates, PEM.
	caKey = "ca.crt"
	// selfLimit bounds the question who we are, which is asked for the record alone.
	selfLimit = 5 * time.Second
)

// ErrNone says that there is no kubeconfig.
var ErrNone = errors.New("there is no kubeconfig")

// Cluster is a cluster and an account in it.
type Cluster struct {
	settings       Settings
	account        string
	config         *rest.Config
	core           core.CoreV1Interface
	authentication authentication.AuthenticationV1Interface
	now            func() time.Time

	mu      sync.Mutex
	token   string
	until   time.Time
	claimed *string // nil until it was asked for
}

// Open reads the kubeconfig and sends nothing yet. account is the ServiceAccount to be unless the settings name one. Where
// there is no kubeconfig the error is ErrNone.
func Open(settings Settings, account string) (*Cluster, error) {
	config, err := read(settings)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubectl-offramp"
	settings.Namespace = cmp.Or(settings.Short, settings.Namespace)
	settings.Service = cmp.Or(settings.Service, defaultService)
	if settings.Account != "" {
		account = settings.Account
	}
	c := &Cluster{settings: settings, account: account, config: config, now: time.Now}
	if c.core, err = core.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("preparing to ask the Kubernetes API server: %w", err)
	}
	if c.authentication, err = authentication.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("preparing to ask the Kubernetes API server: %w", err)
	}
	return c, nil
}

func read(settings Settings) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = settings.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: settings.Context}
	overrides.AuthInfo.Impersonate = settings.As
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return config, nil
}

// Token returns a token of the account and the name that the API server knows the person by, which may be empty. It asks
// for a new token shortly before the one at hand expires.
func (c *Cluster) Token(ctx context.Context) (token, claimed string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == "" || c.now().Add(spare).After(c.until) {
		if err := c.request(ctx); err != nil {
			return "", "", err
		}
	}
	if c.claimed == nil {
		name := c.self(ctx)
		c.claimed = &name
	}
	return c.token, *c.claimed, nil
}

// request asks for a token. The API server's audit has the person's name and the token's id.
func (c *Cluster) request(ctx context.Context) error {
	life := int64(tokenLife.Seconds())
	answer, err := c.core.ServiceAccounts(c.settings.Namespace).CreateToken(ctx, c.account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{c.settings.Audience}, ExpirationSeconds: &life},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token of the ServiceAccount %s/%s: %w", c.settings.Namespace, c.account, err)
	}
	c.token, c.until = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
	return nil
}

// self asks who we are. An API server before 1.28 cannot tell, which is no reason not to go on.
func (c *Cluster) self(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, selfLimit)
	defer cancel()
	review, err := c.authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// Roots returns the certificates that the aggregator publishes, PEM.
func (c *Cluster) Roots(ctx context.Context) ([]byte, error) {
	published, err := c.core.ConfigMaps(c.settings.Namespace).Get(ctx, c.settings.ConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the aggregator's CA from the ConfigMap %s/%s: %w", c.settings.Namespace, c.settings.ConfigMap, err)
	}
	if published.Data[caKey] == "" {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no %s yet", c.settings.Namespace, c.settings.ConfigMap, caKey)
	}
	return []byte(published.Data[caKey]), nil
}

// ServerName is the name in the certificate that the aggregator makes for itself, by whatever address it is reached.
func (c *Cluster) ServerName() string {
	return c.settings.Service + "." + c.settings.Namespace + ".svc"
}

// Exists says whether there is a kubeconfig to be found without being named.
func Exists() bool {
	for _, path := range clientcmd.NewDefaultClientConfigLoadingRules().Precedence {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
