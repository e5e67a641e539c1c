// Uses queues by JMS, through amazon-sqs-java-messaging-lib, and prints what it saw as JSON.
import com.amazon.sqs.javamessaging.AmazonSQSMessagingClientWrapper;
import com.amazon.sqs.javamessaging.ProviderConfiguration;
import com.amazon.sqs.javamessaging.SQSConnection;
import com.amazon.sqs.javamessaging.SQSConnectionFactory;
import com.amazon.sqs.javamessaging.SQSSession;
import jakarta.jms.BytesMessage;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;

public class Program {
    static final int PATIENCE_MILLISECONDS = 60_000;
    static final SqsClient SQS = client();

    static SqsClient client() {
        String key = System.getenv("LEDGER_ACCESS_KEY_ID"), secret = System.getenv("LEDGER_SECRET_ACCESS_KEY");
        return SqsClient.builder()
            .endpointOverride(URI.create(System.getenv("LEDGER_URL")))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(key, secret)))
            .build();
    }

    static SQSConnection connected(SqsClient sqs) throws JMSException {
        // sqs-clients.md
        SQSConnectionFactory factory = new SQSConnectionFactory(new ProviderConfiguration(), sqs);
        SQSConnection connection = factory.createConnection();
        // end
        return connection;
    }

    static List<String> counts(String queue) {
        String url = SQS.getQueueUrl(one -> one.queueName(queue)).queueUrl();
        Map<QueueAttributeName, String> known = SQS.getQueueAttributes(one -> one.queueUrl(url).attributeNames(
            QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES,
            QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE)).attributes();
        return List.of(known.get(QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES),
            known.get(QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE));
    }

    /** Texts, bytes and objects with properties of each type, acknowledged as they are received. */
    static Map<String, Object> kinds(SQSConnection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue("kinds"));
        TextMessage text = session.createTextMessage("a text, ü");
        text.setStringProperty("letters", "ü");
        text.setIntProperty("number", 7);
        text.setBooleanProperty("yes", true);
        text.setJMSCorrelationID("an id");
        text.setJMSReplyTo(session.createQueue("replies"));
        producer.send(text);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, 1, (byte) 254});
        producer.send(bytes);
        producer.send(session.createObjectMessage(new ArrayList<>(List.of("an", "object"))));
        Map<String, Object> found = new LinkedHashMap<>();
        MessageConsumer consumer = session.createConsumer(session.createQueue("kinds"));
        for (int number = 0; number < 3; number++) {
            Message message = consumer.receive(PATIENCE_MILLISECONDS);
            if (message instanceof TextMessage one) {
                found.put("text", Arrays.asList(one.getText(), one.getStringProperty("letters"),
                    one.getIntProperty("number"), one.getBooleanProperty("yes"), one.getJMSCorrelationID(),
                    String.valueOf(one.getJMSReplyTo()), one.getIntProperty("JMSXDeliveryCount"), one.getJMSRedelivered()));
                found.put("same_id", one.getJMSMessageID().equals(text.getJMSMessageID()));
            } else if (message instanceof BytesMessage one) {
                byte[] read = new byte[(int) one.getBodyLength()];
                one.readBytes(read);
                found.put("bytes", List.of(read[0] & 255, read[1] & 255, read[2] & 255));
            } else if (message instanceof ObjectMessage one) {
                found.put("object", one.getObject());
            }
        }
        session.close();
        found.put("left", counts("kinds"));
        return found;
    }

    /** What is not acknowledged comes again when its timeout ends; one acknowledgement takes all that came before it. */
    static Map<String, Object> acknowledged(SQSConnection connection) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue("acknowledged"));
        producer.send(session.createTextMessage("one"));
        producer.send(session.createTextMessage("two"));
        MessageConsumer consumer = session.createConsumer(session.createQueue("acknowledged"));
        List<String> first = new ArrayList<>(), again = new ArrayList<>();
        first.add(((TextMessage) consumer.receive(PATIENCE_MILLISECONDS)).getText());
        first.add(((TextMessage) consumer.receive(PATIENCE_MILLISECONDS)).getText());
        session.recover();
        Message last = null;
        List<Object> redelivered = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            last = consumer.receive(PATIENCE_MILLISECONDS);
            again.add(((TextMessage) last).getText());
            redelivered.add(last.getJMSRedelivered());
        }
        last.acknowledge();
        session.close();
        Collections.sort(first);
        Collections.sort(again);
        return Map.of("first", first, "again", again, "redelivered", redelivered, "left", counts("acknowledged"));
    }

    /** Each message is acknowledged alone. */
    static Map<String, Object> unordered(SQSConnection connection) throws JMSException {
        Session session = connection.createSession(false, SQSSession.UNORDERED_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue("unordered"));
        producer.send(session.createTextMessage("one"));
        producer.send(session.createTextMessage("two"));
        MessageConsumer consumer = session.createConsumer(session.createQueue("unordered"));
        consumer.receive(PATIENCE_MILLISECONDS);
        consumer.receive(PATIENCE_MILLISECONDS).acknowledge();
        List<String> whileOpen = counts("unordered");
        session.close();
        return Map.of("after_one", whileOpen);
    }

    /** A listener of a FIFO queue, whose groups and deduplication ids are JMS's properties. */
    static Map<String, Object> inOrder(SQSConnection connection) throws JMSException, InterruptedException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue("order.fifo"));
        for (String body : List.of("1", "2", "2", "3")) {
            TextMessage message = session.createTextMessage(body);
            message.setStringProperty("JMSXGroupID", "a");
            message.setStringProperty("JMS_SQS_DeduplicationId", "id-of-" + body);
            producer.send(message);
        }
        List<Object> heard = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(3);
        Session listening = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        listening.createConsumer(listening.createQueue("order.fifo")).setMessageListener(message -> {
            try {
                heard.add(List.of(((TextMessage) message).getText(), message.getStringProperty("JMSXGroupID"),
                    message.getStringProperty("JMS_SQS_DeduplicationId")));
                all.countDown();
            } catch (JMSException error) {
                heard.add(String.valueOf(error));
            }
        });
        boolean heardAll = all.await(PATIENCE_MILLISECONDS, TimeUnit.MILLISECONDS);
        listening.close();
        session.close();
        return Map.of("heard", heard, "heard_all", heardAll, "left", counts("order.fifo"));
    }

    static String refused(SQSConnection connection) throws JMSException {
        try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
            session.createQueue("nowhere");
            return "not refused";
        } catch (InvalidDestinationException error) {
            return error.getErrorCode();
        }
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(one -> json(one.getKey()) + ":" + json(one.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Program::json).collect(Collectors.joining(",", "[", "]"));
        }
        if (value instanceof Number || value instanceof Boolean || value == null) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("\"");
        for (char letter : value.toString().toCharArray()) {
            boolean plain = letter >= ' ' && letter < 127 && letter != '"' && letter != '\\';
            text.append(plain ? String.valueOf(letter) : String.format("\\u%04x", (int) letter));
        }
        return text.append('"').toString();
    }

    public static void main(String[] arguments) {
        try {
            System.out.println(json(played()));
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            // A connection that is open would keep the process.
            System.exit(1);
        }
    }

    static Map<String, Object> played() throws Exception {
        SQSConnection connection = connected(SQS);
        AmazonSQSMessagingClientWrapper wrapped = connection.getWrappedAmazonSQSClient();
        for (String name : List.of("kinds", "replies", "acknowledged", "unordered")) {
            wrapped.createQueue(name);
        }
        SQS.createQueue(one -> one.queueName("order.fifo").attributes(Map.of(QueueAttributeName.FIFO_QUEUE, "true")));
        connection.start();
        Map<String, Object> saw = new LinkedHashMap<>();
        saw.put("exists", List.of(wrapped.queueExists("kinds"), wrapped.queueExists("nowhere")));
        saw.put("kinds", kinds(connection));
        saw.put("acknowledged", acknowledged(connection));
        saw.put("unordered", unordered(connection));
        saw.put("in_order", inOrder(connection));
        saw.put("no_queue", refused(connection));
        connection.close();
        return saw;
    }
}
