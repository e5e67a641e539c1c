// Plays the scenario of tests/clients with the AWS SDK for Java v2, and prints what it saw as JSON.
import java.net.URI;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.*;

public class Program {
    static final String PREFIX = "java-";
    static final Map<String, Object> SAW = new LinkedHashMap<>(), ERRORS = new LinkedHashMap<>();
    static final SqsClient SQS = client(System.getenv("LEDGER_SECRET_ACCESS_KEY"));

    static SqsClient client(String secret) {
        String key = System.getenv("LEDGER_ACCESS_KEY_ID");
        // sqs-clients.md
        SqsClient sqs = SqsClient.builder()
            .endpointOverride(URI.create(System.getenv("LEDGER_URL")))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create(key, secret)))
            .build();
        // end
        return sqs;
    }

    static void failing(String label, Runnable call) {
        try {
            call.run();
        } catch (AwsServiceException error) {
            String code = error.awsErrorDetails().errorCode();
            ERRORS.put(label, Map.of("type", error.getClass().getSimpleName(), "code", code));
            return;
        }
        throw new IllegalStateException(label + ": was not refused");
    }

    static String made(String name, Map<QueueAttributeName, String> attributes) {
        return SQS.createQueue(one -> one.queueName(PREFIX + name).attributes(attributes)).queueUrl();
    }

    static String attribute(String url, QueueAttributeName name) {
        return SQS.getQueueAttributes(one -> one.queueUrl(url).attributeNames(name)).attributes().get(name);
    }

    static List<Message> receive(String url, int most, int wait) {
        return SQS.receiveMessage(one -> one.queueUrl(url).maxNumberOfMessages(most).waitTimeSeconds(wait)
            .messageSystemAttributeNames(MessageSystemAttributeName.ALL).messageAttributeNames("All")).messages();
    }

    static String system(Message message, MessageSystemAttributeName name) {
        return message.attributes().get(name);
    }

    static void change(String url, String handle, int seconds) {
        SQS.changeMessageVisibility(one -> one.queueUrl(url).receiptHandle(handle).visibilityTimeout(seconds));
    }

    static void oneMessage(String url) {
        MessageAttributeValue text = MessageAttributeValue.builder().dataType("String").stringValue("väl").build();
        MessageAttributeValue count = MessageAttributeValue.builder().dataType("Number.int").stringValue("42").build();
        SdkBytes four = SdkBytes.fromByteArray(new byte[] {0, 1, (byte) 254, (byte) 255});
        MessageAttributeValue bytes = MessageAttributeValue.builder().dataType("Binary").binaryValue(four).build();
        MessageSystemAttributeValue trace = MessageSystemAttributeValue.builder().dataType("String")
            .stringValue("Root=1-5759e988-bd862e3fe1be46a994272793").build();
        SendMessageResponse sent = SQS.sendMessage(one -> one.queueUrl(url).messageBody("a body, ü and 漢")
            .messageAttributes(Map.of("text", text, "count", count, "bytes", bytes))
            .messageSystemAttributes(Map.of(MessageSystemAttributeNameForSends.AWS_TRACE_HEADER, trace)));
        SAW.put("sent", Map.of(
            "message_id", sent.messageId(), "md5_of_body", sent.md5OfMessageBody(),
            "md5_of_attributes", sent.md5OfMessageAttributes(),
            "md5_of_system_attributes", sent.md5OfMessageSystemAttributes()));
        Message first = receive(url, 1, 0).get(0);
        MessageAttributeValue counted = first.messageAttributes().get("count");
        byte[] binary = first.messageAttributes().get("bytes").binaryValue().asByteArray();
        SAW.put("received", Map.of(
            "message_id", first.messageId(), "body", first.body(), "md5_of_body", first.md5OfBody(),
            "md5_of_attributes", first.md5OfMessageAttributes(), "system", first.attributesAsStrings(),
            "text", first.messageAttributes().get("text").stringValue(),
            "count", List.of(counted.dataType(), counted.stringValue()),
            "bytes", IntStream.range(0, binary.length).mapToObj(place -> binary[place] & 255).toList()));
        change(url, first.receiptHandle(), 2);
        Message again = receive(url, 1, 20).get(0);
        SAW.put("long_poll", Map.of(
            "message_id", again.messageId(),
            "receive_count", system(again, MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT),
            "has_new_handle", !again.receiptHandle().equals(first.receiptHandle())));
        change(url, again.receiptHandle(), 0);
        failing("not_in_flight", () -> change(url, again.receiptHandle(), 5));
        Message last = receive(url, 1, 0).get(0);
        SQS.deleteMessage(one -> one.queueUrl(url).receiptHandle(last.receiptHandle()));
        SAW.put("after_delete", List.of(
            attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES),
            attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE)));
    }

    static Map<String, Object> outcome(List<String> successful, List<BatchResultErrorEntry> failed) {
        List<Object> failures = new ArrayList<>();
        for (BatchResultErrorEntry one : failed) {
            failures.add(Map.of("id", one.id(), "code", one.code(), "sender_fault", one.senderFault()));
        }
        return Map.of("successful", successful, "failed", failures);
    }

    static SendMessageBatchRequestEntry entry(String id, String body, Integer delay) {
        return SendMessageBatchRequestEntry.builder().id(id).messageBody(body).delaySeconds(delay).build();
    }

    static void batches(String url) {
        SendMessageBatchResponse sent = SQS.sendMessageBatch(one -> one.queueUrl(url)
            .entries(entry("one", "1", null), entry("late", "2", 901), entry("three", "3", null)));
        List<String> ids = sent.successful().stream().map(SendMessageBatchResultEntry::id).toList();
        SAW.put("send_batch", outcome(ids, sent.failed()));
        List<Message> messages = receive(url, 10, 0);
        SAW.put("batch_bodies", messages.stream().map(Message::body).sorted().toList());
        List<String> handles = messages.stream().map(Message::receiptHandle).collect(Collectors.toList());
        handles.add("none");
        List<ChangeMessageVisibilityBatchRequestEntry> changes = new ArrayList<>();
        List<DeleteMessageBatchRequestEntry> deletes = new ArrayList<>();
        for (int number = 0; number < handles.size(); number++) {
            String id = String.valueOf(number), handle = handles.get(number);
            changes.add(ChangeMessageVisibilityBatchRequestEntry.builder()
                .id(id).receiptHandle(handle).visibilityTimeout(60).build());
            deletes.add(DeleteMessageBatchRequestEntry.builder().id(id).receiptHandle(handle).build());
        }
        ChangeMessageVisibilityBatchResponse changed =
            SQS.changeMessageVisibilityBatch(one -> one.queueUrl(url).entries(changes));
        ids = changed.successful().stream().map(ChangeMessageVisibilityBatchResultEntry::id).toList();
        SAW.put("change_batch", outcome(ids, changed.failed()));
        DeleteMessageBatchResponse deleted = SQS.deleteMessageBatch(one -> one.queueUrl(url).entries(deletes));
        ids = deleted.successful().stream().map(DeleteMessageBatchResultEntry::id).toList();
        SAW.put("delete_batch", outcome(ids, deleted.failed()));
    }

    static void errors(String url) {
        List<SendMessageBatchRequestEntry> eleven =
            IntStream.range(0, 11).mapToObj(number -> entry(String.valueOf(number), "1", null)).toList();
        failing("no_queue", () -> SQS.getQueueUrl(one -> one.queueName("nowhere")));
        failing("queue_exists", () -> made("standard", Map.of(QueueAttributeName.DELAY_SECONDS, "7")));
        failing("no_handle", () -> SQS.deleteMessage(one -> one.queueUrl(url).receiptHandle("none")));
        failing("empty_batch", () -> SQS.sendMessageBatch(one -> one.queueUrl(url).entries(List.of())));
        failing("same_ids", () -> SQS.sendMessageBatch(
            one -> one.queueUrl(url).entries(entry("one", "1", null), entry("one", "1", null))));
        failing("too_many", () -> SQS.sendMessageBatch(one -> one.queueUrl(url).entries(eleven)));
        failing("no_content", () -> SQS.sendMessage(one -> one.queueUrl(url).messageBody("\u0001")));
        failing("no_such_attribute", () -> SQS.setQueueAttributes(
            one -> one.queueUrl(url).attributesWithStrings(Map.of("Nothing", "1"))));
        SQS.purgeQueue(one -> one.queueUrl(url));
        failing("purged", () -> SQS.purgeQueue(one -> one.queueUrl(url)));
        failing("wrong_secret", () -> client("another secret").listQueues());
    }

    static void fifo() {
        String url = made("of-order.fifo", Map.of(
            QueueAttributeName.FIFO_QUEUE, "true", QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true"));
        List<String> numbers = new ArrayList<>(), ids = new ArrayList<>();
        for (String body : List.of("a1", "a2", "b1", "a1")) {
            SendMessageResponse sent = SQS.sendMessage(
                one -> one.queueUrl(url).messageBody(body).messageGroupId(body.substring(0, 1)));
            numbers.add(sent.sequenceNumber());
            ids.add(sent.messageId());
        }
        failing("no_group", () -> SQS.sendMessage(one -> one.queueUrl(url).messageBody("of none")));
        List<Object> received = new ArrayList<>();
        for (Message one : receive(url, 10, 0)) {
            String group = system(one, MessageSystemAttributeName.MESSAGE_GROUP_ID);
            received.add(List.of(group, one.body(), system(one, MessageSystemAttributeName.SEQUENCE_NUMBER)));
        }
        SAW.put("fifo", Map.of("sequence_numbers", numbers, "message_ids", ids, "received", received,
            "while_in_flight", receive(url, 10, 0).size()));
    }

    static void deadLetters() {
        String dead = made("dead", Map.of()), arn = attribute(dead, QueueAttributeName.QUEUE_ARN);
        String policy = "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":\"1\"}";
        String source = made("source", Map.of(QueueAttributeName.REDRIVE_POLICY, policy));
        SQS.sendMessage(one -> one.queueUrl(source).messageBody("poison"));
        change(source, receive(source, 1, 0).get(0).receiptHandle(), 0);
        int third = receive(source, 1, 0).size();
        Message message = receive(dead, 1, 20).get(0);
        change(dead, message.receiptHandle(), 0);
        List<String> sources = SQS.listDeadLetterSourceQueues(one -> one.queueUrl(dead)).queueUrls();
        String handle = SQS.startMessageMoveTask(one -> one.sourceArn(arn)).taskHandle();
        int tasks = SQS.listMessageMoveTasks(one -> one.sourceArn(arn)).results().size();
        SAW.put("dead_letters", Map.of(
            "received_once_more", third, "body", message.body(),
            "source_arn", system(message, MessageSystemAttributeName.DEAD_LETTER_QUEUE_SOURCE_ARN),
            "expected_arn", attribute(source, QueueAttributeName.QUEUE_ARN), "sources", names(sources),
            "has_task_handle", !handle.isEmpty(), "tasks", tasks, "moved_back", receive(source, 1, 20).get(0).body()));
    }

    static List<String> names(List<String> urls) {
        return urls.stream().map(url -> url.substring(url.lastIndexOf('/') + 1)).toList();
    }

    static void queues(String url) {
        List<Object> pages = new ArrayList<>();
        SQS.listQueuesPaginator(one -> one.queueNamePrefix(PREFIX).maxResults(2))
            .forEach(page -> pages.add(names(page.queueUrls())));
        SAW.put("pages", pages);
        SQS.tagQueue(one -> one.queueUrl(url).tags(Map.of("team", "data", "cost", "ä")));
        SQS.untagQueue(one -> one.queueUrl(url).tagKeys("team"));
        SAW.put("tags", SQS.listQueueTags(one -> one.queueUrl(url)).tags());
        SAW.put("of_environment", SqsClient.create().getQueueUrl(one -> one.queueName(PREFIX + "standard")).queueUrl());
        SQS.deleteQueue(one -> one.queueUrl(url));
        failing("deleted_queue", () -> SQS.sendMessage(one -> one.queueUrl(url).messageBody("late")));
    }

    /** The asynchronous client, over another HTTP library, and its batch manager, which makes batches of single calls. */
    static void batchManager() {
        try (SqsAsyncClient async = SqsAsyncClient.create();
                SqsAsyncBatchManager manager = SqsAsyncBatchManager.builder().client(async).scheduledExecutor(
                    java.util.concurrent.Executors.newScheduledThreadPool(2, Program::daemon)).build()) {
            String url = made("managed", Map.of());
            List<CompletableFuture<SendMessageResponse>> sends = IntStream.range(0, 25)
                .mapToObj(number -> manager.sendMessage(one -> one.queueUrl(url).messageBody("m" + number))).toList();
            List<String> sent = sends.stream().map(one -> one.join().messageId()).sorted().toList();
            List<String> bodies = new ArrayList<>();
            List<CompletableFuture<DeleteMessageResponse>> deletes = new ArrayList<>();
            while (bodies.size() < sent.size()) {
                for (Message one : manager.receiveMessage(given -> given.queueUrl(url)).join().messages()) {
                    bodies.add(one.body());
                    deletes.add(manager.deleteMessage(given -> given.queueUrl(url).receiptHandle(one.receiptHandle())));
                }
            }
            deletes.forEach(CompletableFuture::join);
            bodies.sort(Comparator.comparingInt(body -> Integer.parseInt(body.substring(1))));
            SAW.put("managed", Map.of("ids", sent.stream().distinct().count(), "bodies", bodies,
                "left", attribute(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE)));
        }
    }

    static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(one -> json(one.getKey()) + ":" + json(one.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Iterable<?> list) {
            List<String> parts = new ArrayList<>();
            list.forEach(one -> parts.add(json(one)));
            return "[" + String.join(",", parts) + "]";
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
        String url = made("standard", Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "30"));
        SAW.put("queue_url", url);
        SAW.put("errors", ERRORS);
        oneMessage(url);
        batches(url);
        errors(url);
        fifo();
        deadLetters();
        queues(url);
        batchManager();
        System.out.println(json(SAW));
        System.exit(0);
    }
}
